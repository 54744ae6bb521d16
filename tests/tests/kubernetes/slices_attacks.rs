//! Test slices of a node that was taken over.
//!
//! It writes with the agent's rights, in its own name, whatever it likes.

use api::{Holder, IpBlock, IpReservation, PodHolder, PodNetworkEndpointSlice};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testbed::wait;

use super::agent_scene::AgentScene;
use super::slices::{plain, remote, start, vxlan, wait_remote};

/// Later than everything.
const LAST: &str = "9999-01-02T03:04:05.000000Z";

/// A node whose credentials somebody else has; no agent runs there.
struct Attacker {
    scene: AgentScene,
    network: String,
    number: u32,
}

impl Attacker {
    /// Has one slice say this, in the name of its node.
    fn say(&self, vtep: &str, endpoints: &[Value]) {
        let spec = json!({
            "network": self.network, "networkID": self.number, "node": self.scene.name,
            "vteps": [vtep], "endpoints": endpoints,
        });
        let spec = serde_json::from_value(spec).expect("a spec");
        let mut slice = PodNetworkEndpointSlice::numbered(0, spec).expect("a slice");
        let name = slice.metadata.name.clone().expect("a name");
        self.scene.run(|_| async {
            let slices: Api<PodNetworkEndpointSlice> = Api::all(self.scene.as_agent().await);
            let params = PostParams::default();
            match slices.get_opt(&name).await.expect("slices can be read") {
                Some(known) => {
                    slice.metadata.resource_version = known.metadata.resource_version;
                    let replaced = slices.replace(&name, &params, &slice).await;
                    replaced.expect("the policy lets it say so");
                }
                None => {
                    let made = slices.create(&params, &slice).await;
                    made.expect("the policy lets it say so");
                }
            }
        });
    }

    /// Reserves an address for a pod of its own, and grants that to itself.
    fn reserve(&self, ip: &str) {
        let holder = Holder::Pod(PodHolder {
            namespace: "any".to_owned(),
            name: "any".to_owned(),
            uid: "any".to_owned(),
            node: self.scene.name.clone(),
        });
        let ip = ip.parse().expect("an address");
        let wanted = IpReservation::ask(&self.network, ip, holder).expect("a reservation");
        let name = wanted.metadata.name.clone().expect("a name");
        let granted = json!({"status": {"conditions": [{
            "type": "Granted", "status": "True", "reason": "Granted",
            "message": format!("by node {}", self.scene.name),
            "lastTransitionTime": "2000-01-02T03:04:05Z",
        }]}});
        self.scene.run(|_| async {
            let reservations: Api<IpReservation> = Api::all(self.scene.as_agent().await);
            let made = reservations.create(&PostParams::default(), &wanted).await;
            made.expect("the policy lets it reserve");
            let params = PatchParams::default();
            // The holder of the block may be faster; then it is its answer that counts.
            let _ = reservations
                .patch_status(&name, &params, &Patch::Merge(granted))
                .await;
        });
    }

    /// A block of the network that no node has.
    fn free(&self) -> String {
        let params = ListParams::default().fields(&format!("spec.network={}", self.network));
        let taken = self
            .scene
            .run(|client| async move { Api::<IpBlock>::all(client).list(&params).await });
        let taken = taken.expect("blocks can be listed").items;
        let all = (1..16)
            .rev()
            .map(|block| format!("10.87.0.{}/28", block * 16));
        let mut free = all.filter(|cidr| taken.iter().all(|block| block.spec.cidr != *cidr));
        free.next().expect("a free block")
    }

    /// Takes a block.
    fn take(&self, cidr: &str) {
        let cidr = cidr.parse().expect("a block");
        let uid = self.scene.node_uid();
        let block = IpBlock::take(&self.network, cidr, &self.scene.name, &uid);
        let block = block.expect("a block");
        self.scene.run(|_| async {
            let blocks: Api<IpBlock> = Api::all(self.scene.as_agent().await);
            let taken = blocks.create(&PostParams::default(), &block).await;
            taken.expect("the policy lets it take blocks");
        });
    }
}

fn member(last: u8, ip: &str, since: &str) -> Value {
    json!({"mac": format!("02:66:00:00:00:{last:02x}"), "ips": [ip], "since": since})
}

/// Returns what an agent shows as refused of a node's slices: addresses, counts.
fn refused(scene: &AgentScene, node: &str) -> Vec<(String, u64)> {
    let rows = scene.node.get("endpoints").into_iter();
    rows.filter(|row| row["place"] == "refused" && row["node"] == *node)
        .map(|row| {
            let address = [&row["ips"][0], &row["vteps"][0]];
            let address = address.iter().find_map(|it| it.as_str());
            let count = row["count"].as_u64().expect("a count");
            (address.unwrap_or_default().to_owned(), count)
        })
        .collect()
}

/// ATT-06a, ATT-06b: a node that was taken over draws no address of another node.
///
/// It writes slices with the tunnel address of another node or of none, with the address of another
/// node's pod, dated 9999, and with proofs that the attacker makes for itself. What the honest node knows
/// stays as it is.
#[test]
fn a_node_that_was_taken_over_draws_no_address_of_another_node() {
    let Some(s) = start(testbed::test_name!(), "slices-attack", 4) else {
        return;
    };
    let Some(scene) = AgentScene::prepare(testbed::test_name!(), "slices-attack-3", &[]) else {
        return;
    };
    scene.be_reached_by(&["198.18.4.66"]);
    let number = 0x00a7_0001;
    let blue = vxlan(&s.one, "blue", "10.87.0.0/24", number);
    let (one_uid, two_uid) = (
        s.pod(&s.one, "one", &blue, &json!({})),
        s.pod(&s.two, "two", &blue, &json!({})),
    );
    let (one, two) = (s.one.node.pod("c1"), s.two.node.pod("c2"));
    s.add(&s.one, &one, "one", &one_uid);
    let of_two = s.add(&s.two, &two, "two", &two_uid);
    let (victim, node_2) = (plain(&of_two), s.two.name.as_str());
    wait_remote(&s.one, &[[&blue, node_2, victim]]);
    let attacker = Attacker {
        scene,
        network: blue.clone(),
        number,
    };
    let bad = attacker.scene.name.as_str();
    let unmoved = |what: &str, address: &str, count: u64| {
        wait::until_true(&format!("{what} to be refused"), || {
            refused(&s.one, bad) == [(address.to_owned(), count)]
        });
        let known = [[&blue, node_2, victim].map(str::to_owned)];
        assert_eq!(remote(&s.one), known, "{what}");
    };

    // Tunnels to a host that is no node's, and to another node.
    for vtep in ["203.0.113.66", "198.18.4.12"] {
        attacker.say(vtep, &[member(1, victim, LAST)]);
        unmoved("a tunnel", vtep, 1);
    }
    // To itself, with another's address, of today and of 9999; free ones of nobody's block beside it.
    let free = attacker.free();
    let last = free.replace("/28", "");
    let mut members = vec![member(1, victim, "2026-01-02T03:04:05Z")];
    attacker.say("198.18.4.66", &members);
    unmoved("an address", victim, 1);
    members = vec![member(1, victim, LAST), member(2, &last, LAST)];
    attacker.say("198.18.4.66", &members);
    unmoved("an address of 9999", victim, 2);
    // A reservation that it grants to itself, and a block that is in no subnet.
    attacker.reserve(victim);
    attacker.say("198.18.4.66", &[member(1, victim, LAST)]);
    attacker.take("203.0.113.0/28");
    attacker.say(
        "198.18.4.66",
        &[member(1, victim, LAST), member(2, "203.0.113.7", LAST)],
    );
    wait::until_true("the address outside to be refused", || {
        refused(&s.one, bad).contains(&("203.0.113.7".to_owned(), 1))
    });
    let known = [[&blue, node_2, victim].map(str::to_owned)];
    let ours = |rows: Vec<[String; 3]>| -> Vec<[String; 3]> {
        rows.into_iter().filter(|row| row[2] == victim).collect()
    };
    assert_eq!(ours(remote(&s.one)), known);

    // What it holds it may say, and what it said before it held that counts then.
    attacker.say("198.18.4.66", &[member(3, &last, LAST)]);
    unmoved("a free address", &last, 1);
    attacker.take(&free);
    let mut both = [[blue.as_str(), node_2, victim], [&blue, bad, &last]];
    both.sort_unstable();
    wait_remote(&s.one, &both);
    s.del(&s.one, &one, "one", &one_uid);
    s.del(&s.two, &two, "two", &two_uid);
    proof::of!("ATT-06a", "ATT-06b");
}
