//! `deploy/base/agent-policy.yaml`: who has taken an agent over can take and give back the addresses
//! of its own node, and of no other.

use api::{Holder, IpBlock, IpReservation, PodHolder};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::agent_scene::AgentScene;

/// That it was done, or was refused by the policy for a reason with these words.
fn check<T: std::fmt::Debug>(what: &str, done: Result<T, kube::Error>, refused: Option<&str>) {
    let answer = match done {
        Ok(_) => None,
        Err(kube::Error::Api(status)) if status.code == 403 => Some(status.message),
        Err(other) => Some(other.to_string()),
    };
    let is_right = match (&answer, refused) {
        (None, None) => true,
        (Some(answer), Some(words)) => answer.contains(words),
        _ => false,
    };
    assert!(is_right, "{what}: {answer:?}, and it should be {refused:?}");
}

const OWN_BLOCKS: Option<&str> = Some("blocks of its own node only");
const OWN_PODS: Option<&str> = Some("for pods of its own node only");
const OWN_NAME: Option<&str> = Some("in the name of its own node only");

#[test]
fn an_agent_takes_and_gives_back_blocks_of_its_own_node_only() {
    let Some(s) = AgentScene::prepare(tests::test_name!(), "policy-blocks", &[]) else {
        return;
    };
    s.run(|admin| async {
        let agent: Api<IpBlock> = Api::all(s.as_agent().await);
        let admin: Api<IpBlock> = Api::all(admin);
        let block = |cidr: &str, node: &str| {
            let cidr = cidr.parse().expect("a block");
            IpBlock::take("policy-blocks", cidr, node, "u1").expect("a block")
        };
        let params = PostParams::default();
        let own = block("10.70.0.0/28", &s.name);
        let foreign = block("10.70.0.16/28", "another-node");
        check("own", agent.create(&params, &own).await, None);
        let stolen = agent.create(&params, &foreign).await;
        check("of another", stolen, OWN_BLOCKS);
        admin.create(&params, &foreign).await.expect("a block");
        let status = Patch::Merge(json!({"status": {"used": 3}}));
        for (block, refused) in [(&own, None), (&foreign, OWN_BLOCKS)] {
            let name = block.metadata.name.as_deref().expect("a name");
            let params = PatchParams::default();
            let patched = agent.patch_status(name, &params, &status).await;
            check(name, patched, refused);
            let deleted = agent.delete(name, &DeleteParams::default()).await;
            check(name, deleted, refused);
        }
    });
}

#[test]
fn an_agent_reserves_for_pods_of_its_own_node_and_answers_once_in_its_own_name() {
    let Some(s) = AgentScene::prepare(tests::test_name!(), "policy-reserve", &[]) else {
        return;
    };
    s.run(|admin| async {
        let agent: Api<IpReservation> = Api::all(s.as_agent().await);
        let admin: Api<IpReservation> = Api::all(admin);
        let reservation = |ip: &str, node: &str| {
            let holder = Holder::Pod(PodHolder {
                namespace: "shop".to_owned(),
                name: "web".to_owned(),
                uid: "u1".to_owned(),
                node: node.to_owned(),
            });
            let ip = ip.parse().expect("an address");
            IpReservation::ask("policy-reserve", ip, holder).expect("a reservation")
        };
        let params = PostParams::default();
        let own = reservation("10.71.0.1", &s.name);
        let foreign = reservation("10.71.0.2", "another-node");
        check("own", agent.create(&params, &own).await, None);
        let stolen = agent.create(&params, &foreign).await;
        check("of another", stolen, OWN_PODS);
        admin
            .create(&params, &foreign)
            .await
            .expect("a reservation");

        let name = foreign.metadata.name.as_deref().expect("a name");
        let answer = |status: &str, message: &str| {
            json!({"status": {"conditions": [{
                "type": "Granted", "status": status, "reason": "Said", "message": message,
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            }]}})
        };
        let say = async |body: Value| {
            let patch = Patch::Merge(body);
            agent
                .patch_status(name, &PatchParams::default(), &patch)
                .await
        };
        let for_another = say(answer("True", "by node another-node")).await;
        check("a grant of another", for_another, OWN_NAME);
        let for_another = say(answer("False", "pod a/b on node another-node has it")).await;
        check("a refusal of another", for_another, OWN_NAME);
        // The holder of the block grants to pods of any node.
        let granted = say(answer("True", &format!("by node {}", s.name))).await;
        check("a grant", granted, None);
        let refusal = format!("pod a/b on node {} has it", s.name);
        let second = say(answer("False", &refusal)).await;
        check("a second answer", second, Some("answered once"));
        let gone = say(json!({"status": {"conditions": null}})).await;
        check("none any more", gone, Some("answered once"));

        for (reservation, refused) in [(&own, None), (&foreign, OWN_PODS)] {
            let name = reservation.metadata.name.as_deref().expect("a name");
            let deleted = agent.delete(name, &DeleteParams::default()).await;
            check(name, deleted, refused);
        }
    });
}
