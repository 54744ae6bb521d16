//! Follows a packet to a Service on to one of its endpoints.

use std::net::{IpAddr, SocketAddr};

use agent_common::drop::DropReason;
use agent_common::policy::{self, Decision, Scratch};
use agent_common::port::{PORT_NODE, Port};
use agent_common::service::{SERVICE_ELSEWHERE, ServiceKey};
use api::ServiceProtocol;
use serde_json::json;

use super::depart::Departure;
use super::frame;
use super::guards;
use super::report::{Outcome, Verdict};
use crate::error::AgentError;

/// A packet to a Service.
struct Call {
    from: IpAddr,
    to: SocketAddr,
    protocol: ServiceProtocol,
    /// Place of its ports in the frame, in bytes.
    payload: usize,
}

impl Call {
    /// Reads a frame; `None` for one without ports that Services have.
    fn read(frame: &[u8]) -> Option<Self> {
        let mut scratch = Scratch::EMPTY;
        policy::read(frame, &mut scratch).ok()?;
        let packet = &scratch.packet;
        let served = [ServiceProtocol::Tcp, ServiceProtocol::Udp];
        let protocol = served
            .into_iter()
            .find(|it| it.number() == packet.protocol)?;
        let payload = usize::from(packet.payload);
        let port = frame.get(payload + 2..payload + 4)?.try_into().ok()?;
        let to = IpAddr::from(packet.destination);
        Some(Self {
            from: packet.source.into(),
            to: (to, u16::from_be_bytes(port)).into(),
            protocol,
            payload,
        })
    }
}

impl Departure<'_> {
    /// Translates a packet as `service` does that of a new connection, and follows it.
    ///
    /// Connections go to all endpoints; this one goes to the first.
    pub(super) async fn translate(
        &mut self,
        port: &Port,
        frame: &[u8],
    ) -> Result<Outcome, AgentError> {
        let found = "the address of a Service of the network";
        self.story
            .step("policy", found, "service: to one of its endpoints");
        let Some(call) = Call::read(frame) else {
            let what = "protocol";
            return self
                .no_service(port, frame, what, "neither TCP nor UDP")
                .await;
        };
        let key = ServiceKey {
            network: port.network,
            ip: call.to.ip().into(),
            port: call.to.port(),
            protocol: call.protocol.number(),
            reserved: 0,
        };
        let what = format!("SERVICES[{}, {}]", call.to, call.protocol);
        let Some((service, first)) = self.scene.node.tables.service(&key)? else {
            return self.no_service(port, frame, &what, "nothing").await;
        };
        let Some(first) = first else {
            let reason = match service.flags & SERVICE_ELSEWHERE {
                0 => DropReason::NoBackend,
                _ => DropReason::NoLocalBackend,
            };
            self.story
                .step(what, "no endpoint", format!("drop {reason}"));
            return Ok(self.drop(reason));
        };
        let count = service.count;
        self.story.step(
            what,
            format!("{count} endpoints, set {}", service.set),
            "a connection goes to one of them",
        );
        let backend = SocketAddr::new(first.ip.into(), first.port);
        let what = format!("BACKENDS[{}, 0]", service.set);
        if backend.ip() == call.from {
            let verdict = format!("the sender itself, which sees {} at the other end", call.to);
            self.story.step(what, backend.to_string(), verdict);
            let text =
                "translated to an endpoint of the Service: the sender itself, which gets it back";
            let details = json!({"endpoint": backend.to_string()});
            return Ok(Outcome::new(Verdict::Delivered, text, details));
        }
        let verdict = format!("goes on to it; its answers get {} as their source", call.to);
        self.story.step(what, backend.to_string(), verdict);
        let place = (call.payload, call.protocol.number());
        let translated = frame::translated(frame, place, call.from, backend);
        let decision = self.decide(&translated, port)?;
        if matches!(decision, Decision::Service) {
            // Programs call each other so often only.
            return Ok(self.drop(DropReason::NoProgram));
        }
        Box::pin(self.carry_out(decision, port, &translated)).await
    }

    /// Says where a packet goes that no Service has.
    async fn no_service(
        &mut self,
        port: &Port,
        frame: &[u8],
        what: &str,
        found: &str,
    ) -> Result<Outcome, AgentError> {
        if port.flags & PORT_NODE == 0 {
            self.story.step(what, found, "drop no_service");
            return Ok(self.drop(DropReason::NoService));
        }
        let verdict = "left as it is to the node's stack, which may have the Service";
        self.story.step(what, found, verdict);
        if let Some(judged) = guards::depart(&self.scene.node.tables, frame, port, true)?
            && let Some(reason) = self.scene.judged(port.network, &judged, &mut self.story)
        {
            return Ok(self.drop(reason));
        }
        self.hand_up(frame).await
    }
}
