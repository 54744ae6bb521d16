use super::*;

#[test]
fn an_add_without_a_namespace_names_the_path_that_failed() {
    let error = require(None, "/run/netns/gone").unwrap_err();
    assert_eq!(
        error.to_string(),
        "CNI_NETNS /run/netns/gone could not be opened by the plugin"
    );
}

#[test]
fn the_nodes_own_namespace_is_refused_whatever_its_path() {
    let own = Netns::open(std::path::Path::new("/proc/thread-self/ns/net")).unwrap();
    assert!(matches!(
        require(Some(own), "/x"),
        Err(AgentError::HostNetns { .. })
    ));
}
