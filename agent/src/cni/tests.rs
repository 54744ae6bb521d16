use super::*;

#[test]
fn an_add_without_a_namespace_names_the_path_that_failed() {
    let error = require(None, "/run/netns/gone").unwrap_err();
    let text = error.to_string();
    let failed = "CNI_NETNS /run/netns/gone could not be opened by the plugin: ";
    assert!(text.starts_with(failed), "{text}");
    assert!(text.contains("as root"), "it has a remedy: {text}");
}

#[test]
fn the_nodes_own_namespace_is_refused_whatever_its_path() {
    let own = Netns::open(std::path::Path::new("/proc/thread-self/ns/net")).unwrap();
    assert!(matches!(
        require(Some(own), "/x"),
        Err(AgentError::HostNetns { .. })
    ));
}
