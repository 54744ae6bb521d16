//! Test `deploy/base/agent-policy.yaml` for addresses.
//!
//! An attacker with an agent's rights can take and give back the addresses of its own node, and of no
//! other.

use api::{
    ClaimHolder, Holder, IpBlock, IpReservation, IpamClaim, PodHolder, PodNetworkEndpointSlice,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::agent_scene::{AgentScene, object};

/// That it was done, or was refused by the policy for a reason with these words.
pub(crate) fn check<T: std::fmt::Debug>(
    what: &str,
    done: Result<T, kube::Error>,
    refused: Option<&str>,
) {
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

/// A policy is in force a moment after it was made; they are made together.
async fn in_force<K>(api: &Api<K>, refused: &K)
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let probe = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let refused = async {
        while api.create(&probe, refused).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let refused = tokio::time::timeout(testbed::wait::PATIENCE, refused).await;
    refused.expect("the policy is in force");
}

/// The same of a policy about changes, by one that is tried and not made.
pub(crate) async fn until_refused<T>(probe: impl AsyncFn() -> Result<T, kube::Error>) {
    let refused = async {
        while probe().await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let refused = tokio::time::timeout(testbed::wait::PATIENCE, refused).await;
    refused.expect("the policy is in force");
}

#[test]
fn an_agent_takes_and_gives_back_blocks_of_its_own_node_only() {
    let Some(s) = AgentScene::prepare(testbed::test_name!(), "policy-blocks", &[]) else {
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
        in_force(&agent, &foreign).await;
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
    let Some(s) = AgentScene::prepare(testbed::test_name!(), "policy-reserve", &[]) else {
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
        in_force(&agent, &foreign).await;
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

/// ATT-15a: a token that names no node is no node's, and not every node's.
///
/// It is that of an older Kubernetes, or of no kubelet at all.
#[test]
fn an_agent_whose_token_names_no_node_writes_nothing() {
    let Some(s) = AgentScene::prepare(testbed::test_name!(), "policy-nameless", &[]) else {
        return;
    };
    s.make_pod_on(&s.name, "web", &[]);
    s.run(|admin| async {
        let agent = s.as_agent_of_no_node().await;
        let refused = Some("names no node");
        let params = PostParams::default();

        let cidr = "10.73.0.0/28".parse().expect("a block");
        let block = IpBlock::take("policy-nameless", cidr, &s.name, "u1").expect("a block");
        let blocks: Api<IpBlock> = Api::all(agent.clone());
        in_force(&blocks, &block).await;
        check("a block", blocks.create(&params, &block).await, refused);

        let holder = Holder::Pod(PodHolder {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: "u1".to_owned(),
            node: s.name.clone(),
        });
        let ip = "10.73.0.20".parse().expect("an address");
        let held = IpReservation::ask("policy-nameless", ip, holder).expect("a reservation");
        let reservations: Api<IpReservation> = Api::all(agent.clone());
        let made = reservations.create(&params, &held).await;
        check("a reservation", made, refused);
        let all: Api<IpReservation> = Api::all(admin);
        all.create(&params, &held).await.expect("a reservation");
        let name = held.metadata.name.as_deref().expect("a name");
        let answer = Patch::Merge(json!({"status": {"conditions": [{
            "type": "Granted", "status": "True", "reason": "Said", "message": "by node ",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }]}}));
        let params = PatchParams::default();
        let said = reservations.patch_status(name, &params, &answer).await;
        check("an answer", said, refused);

        let spec = serde_json::from_value(json!({
            "network": "policy-nameless", "networkID": 7, "node": s.name, "vteps": ["192.0.2.1"],
            "endpoints": [{"mac": "02:00:00:00:00:01", "since": "2026-01-02T03:04:05Z"}],
        }));
        let slice = PodNetworkEndpointSlice::numbered(0, spec.expect("a spec")).expect("a slice");
        let slices: Api<PodNetworkEndpointSlice> = Api::all(agent.clone());
        let made = slices.create(&PostParams::default(), &slice).await;
        check("a slice", made, refused);

        let pods: Api<Pod> = Api::namespaced(agent, &s.name);
        let note = json!({"metadata": {"annotations": {"podnet.dev/network-status": "[]"}}});
        let noted = pods.patch_status("web", &params, &Patch::Merge(note)).await;
        check("an annotation", noted, refused);
    });
    proof::of!("ATT-15a");
}

/// ATT-06d: the maker of a claim's reservation removes it; or any node, if refused.
///
/// The reservation keeps the claim's address while no pod has it.
#[test]
fn an_agent_deletes_reservations_of_claims_that_it_made_and_refused_ones_only() {
    let Some(s) = AgentScene::prepare(testbed::test_name!(), "policy-claimed", &[]) else {
        return;
    };
    s.run(|admin| async {
        let agent: Api<IpReservation> = Api::all(s.as_agent().await);
        let admin: Api<IpReservation> = Api::all(admin);
        let reservation = |ip: &str, maker: Option<&str>| {
            let holder = Holder::Claim(ClaimHolder {
                namespace: "vms".to_owned(),
                name: "vm-a.blue".to_owned(),
                uid: "c1".to_owned(),
            });
            let ip = ip.parse().expect("an address");
            let mut made = IpReservation::ask("policy-claimed", ip, holder).expect("a reservation");
            let maker = maker.map(|it| ("podnet.dev/node".to_owned(), it.to_owned()));
            made.metadata.annotations = maker.map(|it| [it].into());
            made
        };
        let params = PostParams::default();
        let delete = async |of: &IpReservation| {
            let name = of.metadata.name.as_deref().expect("a name");
            agent.delete(name, &DeleteParams::default()).await
        };
        let foreign = reservation("10.72.0.1", Some("another-node"));
        in_force(&agent, &foreign).await;
        let stolen = agent.create(&params, &foreign).await;
        check("made in another's name", stolen, OWN_PODS);
        let own = reservation("10.72.0.2", Some(&s.name));
        check("its own", agent.create(&params, &own).await, None);
        // As agents of before make them.
        let unnamed = reservation("10.72.0.3", None);
        check(
            "without a name",
            agent.create(&params, &unnamed).await,
            None,
        );
        admin.create(&params, &foreign).await.expect("another's");
        check("of another", delete(&foreign).await, OWN_PODS);
        check("of nobody", delete(&unnamed).await, OWN_PODS);
        let refusal = json!({"status": {"conditions": [{
            "type": "Granted", "status": "False", "reason": "InUse",
            "message": "pod a/b on node another-node has it",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }]}});
        let name = foreign.metadata.name.as_deref().expect("a name");
        let patch = Patch::Merge(refusal);
        let params = PatchParams::default();
        let answered = admin.patch_status(name, &params, &patch).await;
        answered.expect("an administrator answers");
        check("refused", delete(&foreign).await, None);
        check("its own", delete(&own).await, None);
    });
    proof::of!("ATT-06d");
}

/// ATT-06d: addresses of a claim are written once, and no agent changes them.
#[test]
fn an_agent_gives_addresses_to_a_claim_that_has_none_and_changes_none() {
    let Some(s) = AgentScene::prepare(testbed::test_name!(), "policy-claims", &[]) else {
        return;
    };
    s.run(|admin| async {
        let agent: Api<IpamClaim> = Api::namespaced(s.as_agent().await, &s.name);
        let admin: Api<IpamClaim> = Api::namespaced(admin, &s.name);
        let claim: IpamClaim = object(json!({
            "apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim",
            "metadata": {"name": "vm-a"}, "spec": {"network": "blue", "interface": "net1"},
        }));
        admin
            .create(&PostParams::default(), &claim)
            .await
            .expect("a claim");
        let write = async |ips: Value| {
            let patch = Patch::Merge(json!({"status": {"ips": ips}}));
            agent
                .patch_status("vm-a", &PatchParams::default(), &patch)
                .await
        };
        const ONCE: Option<&str> = Some("may not change those it has");
        check("the first", write(json!(["10.76.0.7/24"])).await, None);
        check("the same", write(json!(["10.76.0.7/24"])).await, None);
        until_refused(async || {
            let params = PatchParams {
                dry_run: true,
                ..PatchParams::default()
            };
            let patch = Patch::Merge(json!({"status": {"ips": ["10.76.0.8/24"]}}));
            agent.patch_status("vm-a", &params, &patch).await
        })
        .await;
        check("another", write(json!(["10.76.0.8/24"])).await, ONCE);
        let one_more = write(json!(["10.76.0.7/24", "10.76.0.8/24"])).await;
        check("one more", one_more, ONCE);
        check("none", write(json!([])).await, ONCE);
        let now = admin.get("vm-a").await.expect("the claim");
        assert_eq!(now.status.expect("its addresses").ips, ["10.76.0.7/24"]);
    });
    proof::of!("ATT-06d", "NPWG-8.2");
}
