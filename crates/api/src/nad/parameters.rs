//! Definitions as parameters of a network (KEP-3698 `parametersRefs`).
//!
//! A configuration of type `podnet` has them in its key `parameters`, with the fields of the `spec` of a
//! `PodNetworkParameters`.

use super::{
    Definition,
    chain::{PluginChain, present},
    own::PLUGIN_TYPE,
    problem::DefinitionProblem,
};
use crate::json::quote;
use crate::listed::{PROBLEM_BYTES, Shortened};
use crate::parameters::PodNetworkParametersSpec;

/// The key of a configuration with the parameters of a network.
const KEY: &str = "parameters";
/// Type and key as a policy of the API server finds them: a policy reads no JSON.
const AS_WRITTEN: [&str; 2] = ["\"podnet\"", "\"parameters\""];
/// Most plugins that a message names.
const NAMED_MAX: usize = 4;

/// Parameters that a definition gives a network, or the reason for none.
pub type DefinitionParameters = Result<PodNetworkParametersSpec, DefinitionProblem>;

/// Reads the parameters of a network, which are not validated yet.
///
/// # Errors
/// The configuration is not podnet's, has no parameters, or some that cannot be read.
pub fn network_parameters(definition: &Definition<'_>) -> DefinitionParameters {
    if definition.config.trim().is_empty() {
        return Err(DefinitionProblem::NoParameters);
    }
    let chain = PluginChain::parse(definition.config, definition.name)?;
    let Some(plugin) = chain.only_plugin(PLUGIN_TYPE) else {
        let types = chain.plugins.iter().take(NAMED_MAX);
        let mut found: Vec<String> = types.map(|plugin| quote(&plugin.plugin_type)).collect();
        if chain.plugins.len() > NAMED_MAX {
            found.push("others".to_owned());
        }
        return Err(DefinitionProblem::PluginOfOthers {
            found: found.join(", "),
        });
    };
    let Some(written) = present(&plugin.config, KEY) else {
        return Err(DefinitionProblem::NoParameters);
    };
    // With an escaped letter in one of them, no policy would keep the parameters as they are.
    if !AS_WRITTEN
        .iter()
        .all(|text| definition.config.contains(text))
    {
        return Err(DefinitionProblem::Escaped);
    }
    let mut reader = serde_json::Deserializer::from_str(written.get());
    serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let path = match path.as_str() {
            "." => KEY.to_owned(),
            path => format!("{KEY}.{path}"),
        };
        // The parser counts from the beginning of the value, and the path says where that is.
        let reason = error.into_inner().to_string();
        let reason = reason
            .rsplit_once(" at line ")
            .map_or(reason.as_str(), |(reason, _)| reason);
        DefinitionProblem::BadValue {
            path: Shortened(path, PROBLEM_BYTES).to_string(),
            reason: Shortened(reason, PROBLEM_BYTES).to_string(),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::parameters::Mode;

    fn read(config: &str) -> DefinitionParameters {
        network_parameters(&Definition {
            namespace: "ops",
            name: "blue",
            annotations: &BTreeMap::new(),
            config,
        })
    }

    fn refused(config: &str) -> String {
        read(config).unwrap_err().to_string()
    }

    /// KEP-P1-06: of one plugin or a list of one, with other keys.
    #[test]
    fn a_configuration_of_podnet_gives_the_fields_of_network_parameters() {
        for config in [
            r#"{"cniVersion":"1.0.0","type":"podnet","parameters":{"mode":"L2","mtu":1400}}"#,
            r#"{"name":"a","plugins":[{"type":"podnet","podNetwork":"blue","parameters":{"mode":"L2","mtu":1400}}]}"#,
        ] {
            let spec = read(config).unwrap();
            assert_eq!((spec.mode, spec.mtu), (Mode::L2, Some(1400)), "{config}");
        }
        proof::of!("KEP-P1-06");
    }

    #[test]
    fn a_configuration_without_parameters_or_of_others_says_what_to_write() {
        let none = refused("");
        assert!(none.contains("add the key parameters"), "{none}");
        assert_eq!(refused(r#"{"type":"podnet","podNetwork":"blue"}"#), none);
        assert_eq!(refused(r#"{"type":"podnet","parameters":null}"#), none);
        let others = refused(r#"{"plugins":[{"type":"macvlan"},{"type":"tuning"}]}"#);
        assert!(
            others.contains("macvlan, tuning") && others.contains("type podnet"),
            "{others}"
        );
        // podnet among others is a chain, and no network of podnet.
        let chained =
            r#"{"plugins":[{"type":"podnet","parameters":{"mode":"L2"}},{"type":"tuning"}]}"#;
        assert!(refused(chained).contains("podnet, tuning"));
        let types: Vec<String> = (0..32).map(|it| format!(r#"{{"type":"p{it}"}}"#)).collect();
        let many = refused(&format!(r#"{{"plugins":[{}]}}"#, types.join(",")));
        assert!(
            many.contains("p3, others") && !many.contains("p4"),
            "{many}"
        );
    }

    #[test]
    fn a_parameter_that_is_not_known_or_of_another_type_is_named() {
        for (parameters, part) in [
            (r#"{"mode":"L2","colour":"red"}"#, "unknown field `colour`"),
            (r#"{"mode":"L4"}"#, "parameters.mode"),
            (r#"{"mode":"L2","mtu":"large"}"#, "parameters.mtu"),
            (r#"{"mode":"L2","subnets":[7]}"#, "parameters.subnets[0]"),
            ("{}", "missing field `mode`"),
            ("[]", "parameters"),
            ("7", "parameters"),
        ] {
            let error = refused(&format!(r#"{{"type":"podnet","parameters":{parameters}}}"#));
            assert!(error.contains(part), "{parameters}: {error}");
        }
        assert!(refused("{").contains("not a JSON object"));
    }

    /// A policy keeps parameters as they are by the text of their key.
    #[test]
    fn a_key_that_a_policy_would_not_find_is_refused() {
        for config in [
            r#"{"type":"podnet","p\u0061rameters":{"mode":"L2"}}"#,
            r#"{"type":"p\u006fdnet","parameters":{"mode":"L2"}}"#,
        ] {
            let error = refused(config);
            assert!(error.contains("without escapes"), "{error}");
        }
    }
}
