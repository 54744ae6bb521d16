use std::collections::BTreeMap;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::*;

/// Links by name, and the group of each.
#[derive(Default)]
struct Node {
    links: BTreeMap<String, u32>,
    /// Links that the kernel does not remove.
    fixed: BTreeSet<String>,
    /// Verbs that it refuses.
    refused: BTreeSet<&'static str>,
    calls: Vec<String>,
}

impl Node {
    fn with(names: &[String]) -> Self {
        Self {
            links: names.iter().map(|name| (name.clone(), 0)).collect(),
            ..Self::default()
        }
    }

    fn call(&mut self, verb: &'static str) -> Result<(), Error> {
        self.calls.push(verb.to_owned());
        match self.refused.contains(verb) {
            true => Err(refusal()),
            false => Ok(()),
        }
    }
}

fn refusal() -> Error {
    let what = "the test refuses";
    Error::Malformed { what }
}

impl LinkGroups for Node {
    fn delete_by_name(&mut self, name: &str) -> Result<bool, Error> {
        self.calls.push(format!("delete {name}"));
        match self.fixed.contains(name) {
            true => Err(refusal()),
            false => Ok(self.links.remove(name).is_some()),
        }
    }

    fn join_group(&mut self, names: &[String], group: u32) -> Result<Removed, Error> {
        self.call("join")?;
        let join = |name: &String| match self.links.get_mut(name) {
            // Somebody holds it against changes, too.
            Some(_) if self.refused.contains("join one") && name.ends_with('0') => Err(refusal()),
            Some(member) => {
                *member = group;
                Ok(true)
            }
            None => Ok(false),
        };
        Ok(names.iter().map(join).collect())
    }

    fn group_members(&mut self, group: u32) -> Result<Vec<String>, Error> {
        self.call("list")?;
        let members = self.links.iter().filter(|(_, it)| **it == group);
        Ok(members.map(|(name, _)| name.clone()).collect())
    }

    fn delete_group(&mut self, group: u32) -> Result<bool, Error> {
        self.call("delete group")?;
        let member = |(name, it): (&String, &u32)| (*it == group).then(|| name.clone());
        let members: Vec<String> = self.links.iter().filter_map(member).collect();
        if members.iter().any(|name| self.fixed.contains(name)) {
            return Err(refusal());
        }
        self.links.retain(|_, it| *it != group);
        Ok(!members.is_empty())
    }
}

const GROUP: u32 = 0x4000_0001;

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("pn{number}")).collect()
}

fn remove(node: &mut Node, names: &[String]) -> Vec<Option<bool>> {
    let removed = remove_all(node, names, GROUP, || ());
    removed.into_iter().map(Result::ok).collect()
}

#[test]
fn many_links_go_in_one_request_and_a_single_one_without_a_group() {
    let names = names(3);
    let mut node = Node::with(&names[..2]);
    node.links.insert("eth0".to_owned(), 0);
    let removed = remove(&mut node, &names);
    assert_eq!(removed, [Some(true), Some(true), Some(false)]);
    assert_eq!(node.calls, ["join", "list", "delete group"]);
    assert_eq!(node.links.keys().collect::<Vec<_>>(), ["eth0"]);

    let mut node = Node::with(&names);
    assert_eq!(remove(&mut node, &names[..1]), [Some(true)]);
    assert_eq!(node.calls, ["delete pn0"]);
}

#[test]
fn an_interface_of_others_in_the_group_stays_and_ours_go_one_by_one() {
    let names = names(2);
    let mut node = Node::with(&names);
    node.links.insert("eth0".to_owned(), GROUP);
    assert_eq!(remove(&mut node, &names), [Some(true), Some(true)]);
    assert_eq!(node.calls, ["join", "list", "delete pn0", "delete pn1"]);
    assert_eq!(node.links.keys().collect::<Vec<_>>(), ["eth0"]);
}

#[test]
fn what_the_kernel_refuses_for_a_group_is_done_one_by_one() {
    for verb in ["join", "list", "delete group"] {
        let names = names(2);
        let mut node = Node::with(&names);
        node.refused.insert(verb);
        assert_eq!(remove(&mut node, &names), [Some(true); 2], "{verb}");
        assert!(node.links.is_empty(), "{verb}");
    }
}

#[test]
fn a_link_that_cannot_be_removed_fails_alone() {
    let names = names(3);
    let mut node = Node::with(&names);
    node.fixed.insert("pn1".to_owned());
    assert_eq!(remove(&mut node, &names), [Some(true), None, Some(true)]);
    assert_eq!(node.links.keys().collect::<Vec<_>>(), ["pn1"]);

    let mut node = Node::with(&names);
    node.refused.insert("join one");
    assert_eq!(remove(&mut node, &names), [Some(true); 3]);
    assert_eq!(node.calls, ["join", "list", "delete group", "delete pn0"]);
}

#[test]
fn grace_periods_are_short_during_each_removal_and_at_no_other_time() {
    let expedited = |names: &[String], alien: bool| {
        let mut node = Node::with(names);
        if alien {
            node.links.insert("eth0".to_owned(), GROUP);
        }
        let count = std::cell::Cell::new(0);
        remove_all(&mut node, names, GROUP, || count.set(count.get() + 1));
        count.get()
    };
    for (count, alien) in [(1, false), (3, false), (3, true)] {
        assert_eq!(expedited(&names(count), alien), 1, "{count} {alien}");
    }
    assert_eq!(expedited(&[], false), 0);
}

#[test]
fn groups_have_numbers_that_nobody_chooses_by_hand() {
    let numbers: BTreeSet<u32> = (0..100).map(|_| random_group()).collect();
    assert!(numbers.len() > 90, "{numbers:?}");
    assert!(
        numbers
            .iter()
            .all(|it| (0x4000_0000..0x8000_0000).contains(it))
    );
}

/// A kernel that removes when it is let.
#[derive(Debug)]
struct Gated {
    gate: Semaphore,
    batches: Mutex<Vec<(Vec<String>, bool)>>,
}

impl Gated {
    fn remover() -> Arc<Remover<Arc<Self>>> {
        let gated = Self {
            gate: Semaphore::new(0),
            batches: Mutex::default(),
        };
        Arc::new(Remover::new(Arc::new(gated)))
    }
}

impl Remove for Arc<Gated> {
    async fn remove(&self, names: Vec<String>, tcx: bool) -> Removed {
        self.batches.lock().unwrap().push((names.clone(), tcx));
        self.gate.acquire().await.unwrap().forget();
        assert!(!names.iter().any(|name| name == "dies"), "the test's doing");
        let outcome = |name: &String| match name.as_str() {
            "fixed" => Err(refusal()),
            name => Ok(name != "missing"),
        };
        names.iter().map(outcome).collect()
    }
}

type Done = JoinSet<(String, Result<Vec<bool>, Error>)>;

/// Has a `DEL` remove its links, and lets it come as far as it can.
async fn begin(remover: &Arc<Remover<Arc<Gated>>>, done: &mut Done, names: &[&str], tcx: bool) {
    let remover = Arc::clone(remover);
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    done.spawn(async move { (names[0].clone(), remover.remove(names, tcx).await) });
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

fn sizes(remover: &Remover<Arc<Gated>>) -> Vec<usize> {
    let batches = remover.shared.kernel.batches.lock().unwrap();
    batches.iter().map(|(names, _)| names.len()).collect()
}

async fn end(remover: &Remover<Arc<Gated>>, done: Done) -> BTreeMap<String, Option<Vec<bool>>> {
    remover.shared.kernel.gate.add_permits(1000);
    let done = done.join_all().await.into_iter();
    done.map(|(name, removed)| (name, removed.ok())).collect()
}

#[tokio::test]
async fn the_links_of_dels_that_wait_go_together_and_a_single_del_at_once() {
    let (remover, mut done) = (Gated::remover(), Done::new());
    for number in 0..100 {
        let name = format!("pn{number}");
        begin(&remover, &mut done, &[&name, "near"], number == 50).await;
    }
    assert_eq!(sizes(&remover), [2, 2], "the first two wait for nobody");
    let removed = end(&remover, done).await;
    assert_eq!(removed.len(), 100);
    assert!(removed.values().all(|it| *it == Some(vec![true, true])));
    assert_eq!(sizes(&remover), [2, 2, LINKS_MAX, LINKS_MAX, LINKS_MAX, 4]);
    let batches = remover.shared.kernel.batches.lock().unwrap();
    let tcx: Vec<bool> = batches.iter().map(|(_, tcx)| *tcx).collect();
    assert_eq!(tcx, [false, false, false, true, false, false]);
}

#[tokio::test]
async fn each_del_has_its_own_result() {
    let (remover, mut done) = (Gated::remover(), Done::new());
    for names in [
        &["a"][..],
        &["b"],
        &["c", "missing"],
        &["d", "fixed"],
        &["e"],
    ] {
        begin(&remover, &mut done, names, false).await;
    }
    let removed = end(&remover, done).await;
    assert_eq!(sizes(&remover), [1, 1, 5]);
    assert_eq!(removed["c"], Some(vec![true, false]));
    assert_eq!(removed["d"], None);
    for name in ["a", "b", "e"] {
        assert_eq!(removed[name], Some(vec![true]), "{name}");
    }
}

#[tokio::test]
async fn a_del_that_nobody_waits_for_any_more_is_done() {
    let (remover, mut done) = (Gated::remover(), Done::new());
    for name in ["a", "b", "c"] {
        begin(&remover, &mut done, &[name], false).await;
    }
    done.abort_all();
    drop(done);
    let mut later = Done::new();
    begin(&remover, &mut later, &["d"], false).await;
    end(&remover, later).await;
    let batches = remover.shared.kernel.batches.lock().unwrap();
    let names: Vec<&String> = batches.iter().flat_map(|(names, _)| names).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
}

#[tokio::test]
async fn a_removal_that_dies_is_an_error_and_the_next_del_is_served() {
    let (remover, mut done) = (Gated::remover(), Done::new());
    for name in ["dies", "dies", "c"] {
        begin(&remover, &mut done, &[name], false).await;
    }
    let removed = end(&remover, done).await;
    assert!(removed.values().all(Option::is_none), "{removed:?}");
    assert_eq!(remover.shared.state().rounds, 0);
    assert_eq!(
        remover.remove(vec!["d".to_owned()], false).await.unwrap(),
        [true]
    );
}

#[tokio::test]
async fn a_del_beyond_those_that_may_wait_removes_its_links_by_itself() {
    let (remover, mut done) = (Gated::remover(), Done::new());
    for _ in 0..WAITING_MAX + ROUNDS_MAX {
        begin(&remover, &mut done, &["waits"], false).await;
    }
    assert_eq!(sizes(&remover), [1, 1]);
    begin(&remover, &mut done, &["beyond"], false).await;
    assert_eq!(sizes(&remover), [1, 1, 1]);
    assert_eq!(end(&remover, done).await.len(), 2);
}
