//! Configurations on disk that go on in a directory of their network's name.

use super::super::{DefinitionProblem, PluginChain};
use super::{LIST, PLUGIN};

/// CNI-CONF-05, CNI-CONF-04: plugins in files follow those of the list, by name.
#[test]
fn plugins_of_the_directory_follow_those_of_the_list() {
    let more = [
        ("20-b.conf", r#"{"type":"b","n":1.0}"#),
        ("10-a.conf", r#"{"type":"a"}"#),
    ];
    let types = |text: &str| {
        let chain = PluginChain::parse_on_disk(text, "")?;
        assert!(chain.has_directory(), "{text}");
        let chain = chain.with_directory(more).unwrap();
        // What is handed on has them, too.
        let again = PluginChain::parse(&chain.config(), "").unwrap();
        assert_eq!(again.plugins, chain.plugins);
        let types = chain.plugins.into_iter().map(|one| one.plugin_type);
        Ok::<_, DefinitionProblem>(types.collect::<Vec<_>>())
    };
    assert_eq!(types(LIST).unwrap(), ["x", "a", "b"]);
    assert_eq!(types(r#"{"name":"blue"}"#).unwrap(), ["a", "b"]);
    assert_eq!(
        types(r#"{"name":"blue","plugins":[]}"#),
        Err(DefinitionProblem::NoPlugins)
    );
    for (text, has) in [
        (PLUGIN, false),
        (
            r#"{"name":"blue","loadOnlyInlinedPlugins":"true","plugins":[{"type":"x"}]}"#,
            false,
        ),
        (r#"{"name":"blue","loadOnlyInlinedPlugins":false}"#, true),
    ] {
        let chain = PluginChain::parse_on_disk(text, "").unwrap();
        assert_eq!(chain.has_directory(), has, "{text}");
    }
    assert_eq!(
        PluginChain::parse_on_disk(r#"{"name":"blue","loadOnlyInlinedPlugins":true}"#, ""),
        Err(DefinitionProblem::NoPlugins)
    );
    // An object has no directory.
    assert_eq!(
        PluginChain::parse(r#"{"name":"blue"}"#, ""),
        Err(DefinitionProblem::NoPlugin)
    );
    proof::of!("CNI-CONF-05", "CNI-CONF-04");
}

/// CNI-CONF-05: pods must not come up without a configured plugin.
#[test]
fn a_broken_file_of_the_directory_is_named() {
    for (file, text, why) in [
        ("10-a.conf", "{", "blue/10-a.conf: the file is not a JSON"),
        ("10-a.conf", r#"{"n":1}"#, "blue/10-a.conf: type is missing"),
    ] {
        let chain = PluginChain::parse_on_disk(LIST, "").unwrap();
        let error = chain.with_directory([(file, text)]).unwrap_err();
        assert!(error.to_string().starts_with(why), "{error}");
    }
    let none = PluginChain::parse_on_disk(r#"{"name":"blue"}"#, "").unwrap();
    let error = none.with_directory([]).unwrap_err().to_string();
    assert_eq!(
        error,
        "blue: plugins is missing or empty; list at least one plugin"
    );
    proof::of!("CNI-CONF-05");
}
