//! Rates of attachments: kept whatever is sent, shown, changed under traffic, and gone with the pod
//! (NPWG 1.3 "bandwidth", CNI CONVENTIONS "bandwidth").

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
        $crate::limiting_node!(tests::Setup::default())
    };
    ($setup:expr) => {{
        if tests::skip::without_root(tests::test_name!())
            || tests::skip::without_shaping(tests::test_name!())
        {
            return;
        }
        tests::Node::start($setup)
    }};
}
