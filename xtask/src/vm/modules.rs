//! The kernel modules of tests, with their dependencies, in the order of loading.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// podnet does not run without these, as modules or built in.
const REQUIRED: [&str; 5] = ["veth", "sch_ingress", "cls_bpf", "bridge", "sch_tbf"];

/// Modules that are loaded when the kernel has them: for some tests.
///
/// They are neighbours, comparisons and tools.
const OPTIONAL: [&str; 26] = [
    "act_bpf",
    "act_gact",
    "act_mirred",
    "act_police",
    "cls_matchall",
    "cls_u32",
    "sch_fq",
    "sch_fq_codel",
    "sch_htb",
    "sch_netem",
    "8021q",
    "dummy",
    "ifb",
    "macvlan",
    "nft_chain_nat",
    "nft_connlimit",
    "nft_counter",
    "nft_ct",
    "nft_fib_inet",
    "nft_fib_ipv4",
    "nft_fib_ipv6",
    "nft_hash",
    "nft_masq",
    "nft_nat",
    "tun",
    "vxlan",
];

/// Modules that a machine with a cluster needs besides.
///
/// They are those of the file system of the machine outside, of containers, and of kube-proxy.
const OF_CLUSTERS: [&str; 31] = [
    "br_netfilter",
    "ip6t_REJECT",
    "ipt_REJECT",
    "nft_chain_nat",
    "xt_MASQUERADE",
    "xt_REDIRECT",
    "xt_addrtype",
    "xt_conntrack",
    "xt_multiport",
    "xt_nat",
    "xt_physdev",
    "xt_recent",
    "xt_statistic",
    "xt_tcpudp",
    "virtio_pci",
    "virtiofs",
    "overlay",
    "nf_conntrack",
    "nf_nat",
    "nf_tables",
    "nft_limit",
    "nft_log",
    "nft_numgen",
    "nft_objref",
    "nft_redir",
    "nft_reject_inet",
    "ip_tables",
    "ip6_tables",
    "xt_comment",
    "xt_mark",
    "nft_compat",
];

/// One module, decompressed.
pub(crate) struct Module {
    /// Path below `lib/modules/<release>`, without a compression suffix.
    pub(crate) path: String,
    /// The ELF file.
    pub(crate) content: Vec<u8>,
    /// Names of the modules it uses.
    pub(crate) depends: Vec<String>,
}

/// Reads the modules under `dir` (`lib/modules/<release>`), dependencies first.
///
/// # Errors
/// A required module is neither there nor built in.
pub(crate) fn collect(dir: &Path) -> Result<Vec<Module>> {
    collect_with(dir, &[])
}

/// As [`collect`], with those of a cluster.
///
/// # Errors
/// As [`collect`].
pub(crate) fn of_cluster(dir: &Path) -> Result<Vec<Module>> {
    collect_with(dir, &OF_CLUSTERS)
}

fn collect_with(dir: &Path, more: &[&str]) -> Result<Vec<Module>> {
    let mut files = BTreeMap::new();
    index(&dir.join("kernel"), &mut files)?;
    let builtin = fs::read_to_string(dir.join("modules.builtin")).unwrap_or_default();
    let builtin: Vec<String> = builtin
        .lines()
        .map(|line| name_of(Path::new(line)))
        .collect();
    for required in REQUIRED {
        if !files.contains_key(required) && !builtin.iter().any(|name| name == required) {
            bail!("this kernel has no {required}, neither as a module nor built in");
        }
    }
    let mut ordered = Vec::new();
    let mut seen = Vec::new();
    for name in REQUIRED.iter().chain(&OPTIONAL).chain(more) {
        load(name, dir, &files, &mut seen, &mut ordered)?;
    }
    Ok(ordered)
}

/// `modules.dep`, as modprobe reads it; nested dependencies come after direct ones.
pub(crate) fn dependency_file(modules: &[Module]) -> String {
    let path = |name: &String| {
        modules
            .iter()
            .find(|m| name_of(Path::new(&m.path)) == *name)
            .map(|m| m.path.as_str())
    };
    let mut text = String::new();
    for module in modules {
        let mut all = module.depends.clone();
        let mut next = 0;
        while let Some(name) = all.get(next).cloned() {
            next += 1;
            let inner = modules.iter().find(|m| name_of(Path::new(&m.path)) == name);
            let inner = inner.map(|m| m.depends.as_slice()).unwrap_or_default();
            let new: Vec<String> = inner.iter().filter(|n| !all.contains(n)).cloned().collect();
            all.extend(new);
        }
        let paths: Vec<&str> = all.iter().filter_map(path).collect();
        text.push_str(&format!("{}: {}\n", module.path, paths.join(" ")));
    }
    text
}

/// Depth first. A name without a file is built in.
fn load(
    name: &str,
    dir: &Path,
    files: &BTreeMap<String, PathBuf>,
    seen: &mut Vec<String>,
    ordered: &mut Vec<Module>,
) -> Result<()> {
    let Some(file) = files.get(name) else {
        return Ok(());
    };
    if seen.iter().any(|other| other == name) {
        return Ok(());
    }
    seen.push(name.to_owned());
    let content = read(file).with_context(|| format!("module {}", file.display()))?;
    let depends = depends(&content);
    for other in &depends {
        load(other, dir, files, seen, ordered)?;
    }
    let relative = file.strip_prefix(dir).unwrap_or(file).to_string_lossy();
    let end = relative.find(".ko").map_or(relative.len(), |at| at + 3);
    ordered.push(Module {
        path: relative[..end].to_owned(),
        content,
        depends,
    });
    Ok(())
}

fn index(dir: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            index(&path, files)?;
        } else if path.to_string_lossy().contains(".ko") {
            files.insert(name_of(&path), path);
        }
    }
    Ok(())
}

/// Returns the kernel's name of a module file.
///
/// `net/8021q/8021q.ko.xz` is `8021q`, `-` is `_`.
fn name_of(path: &Path) -> String {
    let file = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let file = file.unwrap_or_default();
    file.split(".ko")
        .next()
        .unwrap_or_default()
        .replace('-', "_")
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let suffix = path
        .extension()
        .map(|suffix| suffix.to_string_lossy().into_owned());
    match suffix.as_deref() {
        Some("ko") => fs::read(path).context("reading"),
        Some("xz") => {
            let output = Command::new("busybox")
                .args(["xz", "-dc"])
                .arg(path)
                .output()?;
            if !output.status.success() {
                bail!(
                    "busybox xz: {}",
                    String::from_utf8_lossy(&output.stderr).trim()
                );
            }
            Ok(output.stdout)
        }
        other => bail!("unknown compression `{}`", other.unwrap_or_default()),
    }
}

/// The `depends=` string of a module's `.modinfo` section, as modpost wrote it.
fn depends(content: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = content.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let list = &content[at + KEY.len()..];
    let list = list.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(list)
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depends_are_read_from_modinfo() {
        assert_eq!(
            depends(b"\x7fELF\0license=GPL\0depends=stp,llc\0name=bridge\0"),
            ["stp", "llc"]
        );
        assert_eq!(depends(b"\0depends=\0retpoline=Y\0"), [""; 0]);
        assert_eq!(depends(b"no modinfo at all"), [""; 0]);
    }

    #[test]
    fn module_names_are_the_kernels() {
        assert_eq!(name_of(Path::new("kernel/net/8021q/8021q.ko.xz")), "8021q");
        assert_eq!(name_of(Path::new("kernel/net/sched/sch-tbf.ko")), "sch_tbf");
    }

    #[test]
    fn dependencies_come_before_what_needs_them_and_once() {
        let dir = std::env::temp_dir().join(format!("podnet-modules-{}", std::process::id()));
        let kernel = dir.join("kernel/net");
        fs::create_dir_all(&kernel).unwrap();
        for (name, needs) in [
            ("llc", ""),
            ("stp", "llc"),
            ("bridge", "stp,llc"),
            ("veth", ""),
            ("cls_bpf", ""),
            ("sch_tbf", ""),
        ] {
            let modinfo = format!("\0depends={needs}\0");
            fs::write(kernel.join(format!("{name}.ko")), modinfo).unwrap();
        }
        let missing = collect(&dir).err().map(|error| error.to_string());
        fs::write(
            dir.join("modules.builtin"),
            "kernel/net/sched/sch_ingress.ko\n",
        )
        .unwrap();
        let modules = collect(&dir).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert!(missing.unwrap().contains("sch_ingress"));
        let names: Vec<_> = modules
            .iter()
            .map(|m| name_of(Path::new(&m.path)))
            .collect();
        assert_eq!(
            names,
            ["veth", "cls_bpf", "llc", "stp", "bridge", "sch_tbf"]
        );
        let file = dependency_file(&modules);
        assert!(
            file.contains("net/bridge.ko: kernel/net/stp.ko kernel/net/llc.ko\n"),
            "{file}"
        );
    }
}
