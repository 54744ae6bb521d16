//! Follows a described packet through the tables of the datapath.
//!
//! The answer says where the packet ends, and why.
//!
//! The frame is built as the pod's kernel would send it, and decided about by the policy that the
//! programs run, [`agent_common::policy::decide`], over the maps as they are in the kernel: nothing of
//! what this agent believes to be in them takes part. Where its records say something else, that is
//! told beside it. Nothing is sent, no counter moves, and no connection is kept.

mod address;
mod advice;
mod arrive;
mod carry_out;
mod depart;
mod directory;
mod frame;
mod guards;
mod here;
mod incoming;
mod judged;
mod question;
mod report;
mod scene;
mod service;
mod tables;
mod wire;

use book::BookError;
use cni_spec::FollowRequest;
use serde_json::Value;

use self::directory::{Directory, Member};
use self::question::Question;
use self::scene::Scene;
use crate::error::AgentError;
use crate::node::Node;

/// Follows a packet of this description through the tables.
///
/// # Errors
/// When the description names nobody, or the kernel does not tell.
pub async fn follow(node: &Node, request: &FollowRequest) -> Result<Value, AgentError> {
    let question = Question::read(request)?;
    let directory = Directory::of(node);
    let from = directory.find(&question.from)?;
    let mut to = directory.find(&question.to)?;
    if let (None, Some(network), Some(address)) = (&to.member, from.network, to.address) {
        // An address by itself is looked for where the sender is.
        to.member = directory.member(network, address);
    }
    let scene = Scene {
        node,
        directory,
        question,
    };
    let elsewhere = scene.question.arrive_from.is_some();
    let report = match (&from.member, &from.network) {
        (Some(Member::Here(record)), _) if !elsewhere => {
            depart::follow(&scene, record, &from, &to).await?
        }
        (Some(Member::There(network, _)), _) | (_, Some(network)) if scene.has_uplink(*network) => {
            incoming::follow(&scene, &from, &to, *network).await?
        }
        (Some(Member::There(network, _)), _) => {
            arrive::follow(&scene, &from, &to, *network).await?
        }
        (_, Some(network)) if elsewhere => arrive::follow(&scene, &from, &to, *network).await?,
        _ => return Err(scene.nobody().into()),
    };
    serde_json::to_value(report)
        .map_err(|source| BookError::Record {
            key: "the report".to_owned(),
            source,
        })
        .map_err(AgentError::from)
}
