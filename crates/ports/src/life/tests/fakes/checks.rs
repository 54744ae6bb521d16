//! Check that nothing can be used past what guards it.

use host::{Ear, HOST_PREFIX, NEAR_PREFIX};

use super::{FakeLink, Things};

impl Things {
    /// Fails when something that is up could be used past what guards it.
    pub(in super::super) fn assert_guarded(&self) {
        for link in self.links.values().filter(|link| link.up) {
            let name = &link.name;
            if name.starts_with(NEAR_PREFIX) {
                let far = link.peer.and_then(|peer| self.links.get(&peer));
                assert!(far.is_some_and(|far| far.up), "{name} before its far end");
                assert!(link.shape.is_some(), "{name} has no rate");
                assert!(link.silent, "{name} speaks");
                continue;
            }
            let is_robbed = self
                .index_of(name)
                .is_some_and(|it| self.robbed.contains(&it));
            let is_guarded = link.guarded || is_robbed;
            assert!(is_guarded, "{name} is up without the dispatcher");
            assert!(link.silent || link.listens.is_some(), "{name} speaks");
            // The node's stack sends to those that it listens to.
            let is_judged = link.judged || is_robbed || link.listens != Some(Ear::Host);
            assert!(
                is_judged,
                "{name} is up without the dispatcher of the way out"
            );
            if name.starts_with(HOST_PREFIX) {
                self.assert_port_guarded(link);
            }
        }
    }

    fn assert_port_guarded(&self, link: &FakeLink) {
        let name = &link.name;
        let record = &self.asked[name];
        let (limits, mtu) = (record.limits, record.network.mtu);
        let shape = limits.ingress.map(|limit| limit.shape(mtu));
        assert_eq!(link.shape, shape, "{name} is up without its rate");
        if limits.egress.is_some() {
            let near = self.index_of(&host::near_name(name));
            let near = near.map(|near| &self.links[&near]);
            assert!(near.is_some_and(|near| near.up), "{name} before its shaper");
        }
        assert_eq!(link.listens.is_some(), record.network.by_node, "{name}");
        if record.is_afxdp() {
            let is_fit = link.finishes && link.fitted && self.xsk.contains(name);
            assert!(is_fit, "{name} is up without its program");
        }
    }
}
