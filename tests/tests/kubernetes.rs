//! podnet's objects as a real API server has them. One server serves all tests of this binary:
//! each makes a namespace of its own, or gives its cluster-wide objects a name of its own.

mod kubernetes {
    mod objects;
    mod scene;

    mod crds;
    mod crds_addresses;
    mod crds_parameters;
    mod crds_standard;
    mod server;
}
