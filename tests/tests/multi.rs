//! Test pods that list their networks, and attachments made by other plugins.
//!
//! Modules by subject, names by the requirement; the ids are those of NPWG's sections and of KEP-3698.

mod multi {
    mod scene;

    mod conf_directory;
    mod crash;
    mod default_network;
    mod default_networks;
    mod default_route;
    mod delegated;
    mod device;
    mod devices;
    mod ending;
    mod host_ports;
    mod limits;
    mod list;
    mod options;
    mod record;
    mod reference;
}
