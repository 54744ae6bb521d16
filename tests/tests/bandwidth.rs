//! Test rates of attachments: enforced, shown, changed under traffic, and removed.
//!
//! They are those of NPWG 1.3 "bandwidth" and CNI CONVENTIONS "bandwidth".

mod bandwidth {
    mod change;
    mod damage;
    mod explain;
    mod rate;
    mod restart;
    mod values;
    mod views;
}

/// A node whose kernel can limit rates; returns from the test otherwise.
#[macro_export]
macro_rules! limiting_node {
    () => {
        $crate::limiting_node!(testbed::Setup::default())
    };
    ($setup:expr) => {{
        if testbed::skip::without_root(testbed::test_name!())
            || testbed::skip::without_shaping(testbed::test_name!())
        {
            return;
        }
        testbed::Node::start($setup)
    }};
}
