//! Manifests of a directory, of which only changed files are parsed again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use api::{Documents, Object, PolicyObject, ServiceObject, ServiceSlice};

use crate::policies::{Labels, PolicyWorld};
use crate::services::ServiceWorld;
use crate::{Definition, World, resolve};

/// A directory, and the files of it that were read, each with what its text says.
///
/// A thousand policies take longer to parse than to put in force: a file with the same text is not parsed again.
#[derive(Debug)]
pub struct Manifests {
    directory: PathBuf,
    files: BTreeMap<PathBuf, File>,
}

/// The text of a file, and the objects in it.
#[derive(Debug, Default)]
struct File {
    /// `None` for what could not be read the last time.
    text: Option<String>,
    objects: Vec<Object>,
    definitions: Vec<((String, String), Definition)>,
    policies: Vec<Arc<PolicyObject>>,
    namespaces: Vec<(String, Labels)>,
    broken: Vec<String>,
    broken_policies: Vec<String>,
    services: Vec<Arc<ServiceObject>>,
    slices: Vec<Arc<ServiceSlice>>,
    broken_services: Vec<String>,
}

impl Manifests {
    /// Takes a directory, of which nothing is read yet.
    pub fn of(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            files: BTreeMap::new(),
        }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Reads every `*.yaml`, `*.yml` and `*.json` file, ordered by name.
    ///
    /// # Errors
    /// When the directory cannot be listed; a broken file is reported in [`World::broken`], what is wrong with a
    /// policy in [`PolicyWorld::broken`], and with a Service in [`ServiceWorld::broken`].
    pub fn read(&mut self) -> Result<(World, PolicyWorld, ServiceWorld), io::Error> {
        let mut paths: Vec<PathBuf> = fs::read_dir(&self.directory)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        paths.retain(|path| {
            path.extension()
                .is_some_and(|kind| kind == "yaml" || kind == "yml" || kind == "json")
        });
        paths.sort();
        let mut before = std::mem::take(&mut self.files);
        for path in paths {
            let name = path.display().to_string();
            match fs::read_to_string(&path) {
                Ok(text) => {
                    let known = before.remove(&path);
                    let known = known.filter(|file| file.text.as_ref() == Some(&text));
                    let file = known.unwrap_or_else(|| File::parse(&name, text));
                    self.files.insert(path, file);
                }
                // Gone since it was listed: as if it had been removed a moment earlier.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let known = before.remove(&path).unwrap_or_default();
                    self.files.insert(path, known.unreadable(&name, &error));
                }
            }
        }
        Ok(self.worlds())
    }

    /// All that the files say.
    fn worlds(&self) -> (World, PolicyWorld, ServiceWorld) {
        let (mut objects, mut definitions) = (Vec::new(), BTreeMap::new());
        let mut broken = Vec::new();
        let mut policies = PolicyWorld::default();
        let (mut services, mut slices) = (Vec::new(), Vec::new());
        let mut broken_services = Vec::new();
        for file in self.files.values() {
            objects.extend(file.objects.iter().cloned());
            definitions.extend(file.definitions.iter().cloned());
            broken.extend(file.broken.iter().cloned());
            policies.policies.extend(file.policies.iter().cloned());
            policies.namespaces.extend(file.namespaces.iter().cloned());
            policies.broken.extend(file.broken_policies.iter().cloned());
            services.extend(file.services.iter().cloned());
            slices.extend(file.slices.iter().cloned());
            broken_services.extend(file.broken_services.iter().cloned());
        }
        let world = World {
            resolved: resolve(objects, &definitions),
            definitions,
            broken,
            ..World::default()
        };
        let services = ServiceWorld::of(services, slices, broken_services);
        (world, policies.sorted(), services)
    }
}

impl File {
    fn parse(name: &str, text: String) -> Self {
        let (mut broken, mut broken_policies) = (Vec::new(), Vec::new());
        let documents = Documents::of(name, &text);
        let objects = sound(documents.manifests(), &mut broken);
        let definitions = sound(documents.definitions(), &mut broken);
        let policies = sound(documents.policies(), &mut broken_policies);
        let namespaces = sound(documents.namespaces(), &mut broken_policies);
        let mut broken_services = Vec::new();
        let services = sound(documents.services(), &mut broken_services);
        let slices = sound(documents.service_slices(), &mut broken_services);
        Self {
            objects,
            definitions: definitions.into_iter().map(Definition::of).collect(),
            policies: policies.into_iter().map(Arc::new).collect(),
            namespaces,
            broken,
            broken_policies,
            services: services.into_iter().map(Arc::new).collect(),
            slices: slices.into_iter().map(Arc::new).collect(),
            broken_services,
            text: Some(text),
        }
    }

    /// The same objects, with the reason for which they may not be those of the file.
    ///
    /// Without its policies what they deny would be open.
    fn unreadable(self, name: &str, error: &io::Error) -> Self {
        let objects = self.objects.len() + self.definitions.len();
        let for_policies = self.policies.len() + self.namespaces.len();
        let for_services = self.services.len() + self.slices.len();
        let kept = if objects + for_policies + for_services > 0 {
            "what it said before stays: "
        } else {
            ""
        };
        Self {
            text: None,
            broken: vec![format!("{name}: {kept}{error}")],
            ..self
        }
    }
}

/// Returns what could be read, and puts the errors of all else into `broken`.
fn sound<T, E: ToString>(read: Vec<Result<T, E>>, broken: &mut Vec<String>) -> Vec<T> {
    let sound = read
        .into_iter()
        .filter_map(|one| one.map_err(|error| broken.push(error.to_string())).ok());
    sound.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(name: &str, network: &str) -> String {
        format!(
            "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: {name}, namespace: a, \
             annotations: {{podnet.dev/networks: {network}}}}}\nspec: {{}}\n"
        )
    }

    #[test]
    fn a_file_with_the_same_text_is_not_parsed_again() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        let mut manifests = Manifests::of(directory.path());
        let mut policies = || {
            let (world, policies, _) = manifests.read().unwrap();
            assert_eq!(world, World::read(directory.path()).unwrap());
            policies.policies
        };
        write("a.yaml", &policy("a", "blue"));
        write("b.yaml", &policy("b", "blue"));
        let before = policies();
        write("a.yaml", &policy("a", "blue"));
        write("b.yaml", &policy("b", "green"));
        write("c.yaml", &policy("c", "blue"));
        let after = policies();
        assert_eq!(after.len(), 3);
        assert!(Arc::ptr_eq(&before[0], &after[0]));
        assert_ne!(before[1], after[1]);
        fs::remove_file(directory.path().join("a.yaml")).unwrap();
        assert_eq!(policies(), after[1..]);
    }

    #[test]
    fn a_file_that_cannot_be_read_any_more_keeps_its_objects_and_is_told() {
        let space = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n";
        for text in [&policy("a", "blue"), space] {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("a.yaml");
            let mut manifests = Manifests::of(directory.path());
            fs::write(&file, text).unwrap();
            let (_, before, _) = manifests.read().unwrap();
            assert_ne!(before, PolicyWorld::default());
            // Not UTF-8.
            fs::write(&file, [0xff]).unwrap();
            for _ in 0..2 {
                let (world, after, _) = manifests.read().unwrap();
                assert_eq!(after, before);
                let [told] = &*world.broken else {
                    panic!("{:?}", world.broken)
                };
                assert!(told.contains("a.yaml: what it said before stays"), "{told}");
            }
            fs::write(&file, "").unwrap();
            let (world, after, _) = manifests.read().unwrap();
            assert_eq!((world.broken.len(), after), (0, PolicyWorld::default()));
        }
    }

    #[test]
    fn problems_of_a_file_are_told_until_it_is_mended() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        let mut manifests = Manifests::of(directory.path());
        let mut broken = || {
            let (world, policies, _) = manifests.read().unwrap();
            (world.broken.len(), policies.broken.len())
        };
        write("a.yaml", "kind: PodNetwork\napiVersion: podnet.dev/v9\n");
        write("b.yaml", &policy("a", "Blue"));
        let both = broken();
        assert_eq!(both, (1, 2));
        write("c.yaml", &policy("c", "blue"));
        assert_eq!(broken(), both);
        write("a.yaml", "");
        write("b.yaml", &policy("a", "blue"));
        assert_eq!(broken(), (0, 0));
    }
}
