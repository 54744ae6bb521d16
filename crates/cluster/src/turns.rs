//! Put work in an order in which no namespace keeps the others waiting.

use std::collections::{BTreeMap, VecDeque};

/// Puts items in the order in which each namespace has one in turn.
///
/// Another one is the first each `turn`.
pub fn by_turns<T>(items: Vec<T>, turn: usize, namespace: impl Fn(&T) -> String) -> Vec<T> {
    let mut by_namespace: BTreeMap<String, VecDeque<T>> = BTreeMap::new();
    for item in items {
        let namespace = namespace(&item);
        by_namespace.entry(namespace).or_default().push_back(item);
    }
    let mut queues: Vec<VecDeque<T>> = by_namespace.into_values().collect();
    let first = turn.checked_rem(queues.len()).unwrap_or(0);
    queues.rotate_left(first);
    let mut ordered = Vec::new();
    while !queues.is_empty() {
        ordered.extend(queues.iter_mut().filter_map(VecDeque::pop_front));
        queues.retain(|queue| !queue.is_empty());
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_with_many_items_keeps_none_from_the_others() {
        let all = [("a", "1"), ("a", "2"), ("a", "3"), ("b", "4"), ("", "5")];
        let names = |turn| -> Vec<&str> {
            let ordered = by_turns(all.to_vec(), turn, |(namespace, _)| (*namespace).to_owned());
            ordered.into_iter().map(|(_, name)| name).collect()
        };
        assert_eq!(names(0), ["5", "1", "4", "2", "3"]);
        assert_eq!(names(1), ["1", "4", "5", "2", "3"]);
        assert!(by_turns(Vec::<u8>::new(), 7, |_| String::new()).is_empty());
    }
}
