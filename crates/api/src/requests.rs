//! Schemas of a MAC address and of addresses that an interface must have.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Returns the schema of `macRequest`: the address of one interface.
pub(crate) fn mac(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 17,
        "pattern": "^([0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}|[0-9A-Fa-f]{2}(-[0-9A-Fa-f]{2}){5})$",
        "x-kubernetes-validations": [{
            "rule": "self.matches('^.[02468aceACE]') && !self.matches('^[0:-]*$')",
            "message": "must be the address of one interface: the second digit even, and not all zero",
        }],
    })
}

/// Returns the schema of `ipRequests`: addresses that a pod can have, each once.
pub(crate) fn ips(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "items": {"type": "string", "maxLength": 43},
        "x-kubernetes-validations": [{
            "rule": "self.all(a, isIP(a) || isCIDR(a))",
            "message": "must be addresses, with or without a prefix length, as 10.10.0.7 or fd10:10::7/64",
        }, {
            "rule": "self.all(a, !isIP(a) && !isCIDR(a) || !['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '255.255.255.255/32', '::/8', 'fe80::/10', 'ff00::/8'].exists(p, cidr(p).containsIP(isIP(a) ? ip(a) : cidr(a).ip())))",
            "message": "must be addresses that a pod can have, not of 0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0/4, 255.255.255.255, ::/8, fe80::/10 or ff00::/8",
        }, {
            "rule": "!self.all(a, isIP(a) || isCIDR(a)) || self.all(a, self.exists_one(b, (isIP(a) ? ip(a) : cidr(a).ip()) == (isIP(b) ? ip(b) : cidr(b).ip())))",
            "message": "has the same address twice; remove one",
        }],
    })
}
