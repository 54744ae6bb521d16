//! Messages and paths of calls, made of `proto` by `tests/generated.rs`.

#[expect(missing_docs, reason = "the descriptions in `proto` explain fields")]
pub(crate) mod v1beta1 {
    include!("generated/v1beta1.rs");
}

#[expect(missing_docs, reason = "the descriptions in `proto` explain fields")]
pub(crate) mod v1 {
    include!("generated/v1.rs");
}
