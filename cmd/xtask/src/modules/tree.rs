//! The modules of a crate, and which module a name leads to.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Source;

/// The longest way over re-exports that is followed.
const MOST_HOPS: usize = 16;

/// The modules of a crate.
#[derive(Debug, Default)]
pub(super) struct Tree<'a> {
    modules: BTreeMap<Vec<&'a str>, Module<'a>>,
}

/// A module as others see it.
#[derive(Debug, Default)]
struct Module<'a> {
    file: &'a str,
    children: BTreeSet<&'a str>,
    items: BTreeSet<&'a str>,
    imports: BTreeMap<&'a str, Vec<Vec<&'a str>>>,
    globs: Vec<Vec<&'a str>>,
    /// The modules of this crate that the globs lead to.
    brought: BTreeSet<Vec<&'a str>>,
    paths: BTreeSet<Vec<&'a str>>,
}

/// One module's use of another.
#[derive(Debug)]
pub(super) struct Use<'t, 'a> {
    pub(super) file: &'a str,
    pub(super) from: &'t [&'a str],
    pub(super) to: Vec<&'a str>,
    /// The path by which it is named.
    pub(super) path: &'t [&'a str],
}

impl<'a> Tree<'a> {
    /// Puts together what was read of a crate's files, which are named from its `src` on.
    pub(super) fn new(files: impl IntoIterator<Item = (&'a str, Source<'a>)>) -> Self {
        let mut tree = Self::default();
        for (file, source) in files {
            let path = match file.trim_end_matches(".rs").trim_end_matches("/mod") {
                "lib" | "main" => Vec::new(),
                path => path.split('/').collect(),
            };
            tree.insert(file, path, source);
        }
        tree.keep_declared();
        tree.follow_globs();
        tree
    }

    fn insert(&mut self, file: &'a str, path: Vec<&'a str>, source: Source<'a>) {
        for (name, inner) in source.inline {
            self.modules
                .entry(path.clone())
                .or_default()
                .children
                .insert(name);
            let mut below = path.clone();
            below.push(name);
            self.insert(file, below, inner);
        }
        let module = self.modules.entry(path).or_default();
        module.file = file;
        module.children.extend(source.declared);
        module.items.extend(source.items);
        for (name, path) in source.imports {
            module.imports.entry(name).or_default().push(path);
        }
        module.globs.extend(source.globs);
        module.paths.extend(source.paths);
    }

    /// Drops files that no module declares: those of tests, and other programs.
    fn keep_declared(&mut self) {
        let declared = |path: &[&str]| {
            (1..=path.len()).all(|depth| {
                self.modules
                    .get(&path[..depth - 1])
                    .is_some_and(|parent| parent.children.contains(path[depth - 1]))
            })
        };
        let kept: BTreeSet<Vec<&str>> = self
            .modules
            .keys()
            .filter(|path| declared(path))
            .cloned()
            .collect();
        self.modules.retain(|path, _| kept.contains(path));
    }

    /// Finds the modules that globs lead to. A module whose name is brought by another glob is not found.
    fn follow_globs(&mut self) {
        let mut brought = Vec::new();
        for (at, module) in &self.modules {
            for glob in &module.globs {
                let mut led_to = BTreeSet::new();
                self.follow(at, glob, MOST_HOPS, &mut led_to);
                led_to.remove(at);
                brought.push((at.clone(), led_to));
            }
        }
        for (at, led_to) in brought {
            self.modules.entry(at).or_default().brought.extend(led_to);
        }
    }

    /// Every use of a module by another.
    pub(super) fn uses(&self) -> Vec<Use<'_, 'a>> {
        let mut found = Vec::new();
        for (from, module) in &self.modules {
            let imported = module.imports.values().flatten();
            // A single name that is no import may still be one of those that a glob brings.
            let named = module
                .paths
                .iter()
                .filter(|path| path.len() > 1 || !module.globs.is_empty());
            for path in imported.chain(&module.globs).chain(named) {
                let mut led_to = BTreeSet::new();
                self.follow(from, path, MOST_HOPS, &mut led_to);
                led_to.remove(from);
                let file = module.file;
                found.extend(led_to.into_iter().map(|to| Use { file, from, to, path }));
            }
        }
        found
    }

    /// Adds the modules that a path leads to from a module: those that re-export the item and the one that defines it.
    fn follow(&self, from: &[&'a str], path: &[&'a str], hops: usize, led_to: &mut BTreeSet<Vec<&'a str>>) {
        let (mut at, mut rest) = (from.to_vec(), path);
        while let [first, after @ ..] = rest {
            match *first {
                "crate" => at.clear(),
                "super" => {
                    at.pop();
                }
                "self" => {}
                _ => break,
            }
            rest = after;
        }
        let is_anchored = rest.len() < path.len();
        while let [name, after @ ..] = rest {
            let Some(module) = self.modules.get(&at) else {
                return;
            };
            let is_child = module.children.contains(name);
            if !is_child || after.is_empty() {
                self.look_up(&at, name, after, hops, led_to);
            }
            if !is_child {
                // A name that nothing here knows is another crate's, or the language's.
                if is_anchored || at != from || module.knows(name) {
                    led_to.insert(at);
                }
                return;
            }
            at.push(name);
            rest = after;
        }
        led_to.insert(at);
    }

    /// Follows the imports by which a module knows a name, with what follows the name.
    fn look_up(
        &self,
        at: &[&'a str],
        name: &'a str,
        after: &[&'a str],
        hops: usize,
        led_to: &mut BTreeSet<Vec<&'a str>>,
    ) {
        let (Some(module), Some(hops)) = (self.modules.get(at), hops.checked_sub(1)) else {
            return;
        };
        if module.items.contains(name) {
            return;
        }
        if let Some(imports) = module.imports.get(name) {
            // Where `a` is no child, `use a` and `use a::a` are of another crate.
            let own = |import: &&Vec<&str>| import.first() != Some(&name) || module.children.contains(name);
            for import in imports.iter().filter(own) {
                let whole: Vec<&str> = import.iter().chain(after).copied().collect();
                self.follow(at, &whole, hops, led_to);
            }
            return;
        }
        for glob in &module.brought {
            if self.defines(glob, name, &mut BTreeSet::from([at.to_vec()])) {
                led_to.insert(glob.clone());
                self.look_up(glob, name, after, hops, led_to);
            }
        }
    }

    /// Whether a module has a name, as its own or by an import.
    fn defines(&self, at: &[&'a str], name: &'a str, seen: &mut BTreeSet<Vec<&'a str>>) -> bool {
        let Some(module) = self.modules.get(at) else {
            return false;
        };
        seen.insert(at.to_vec())
            && (module.knows(name) || module.brought.iter().any(|glob| self.defines(glob, name, seen)))
    }
}

impl Module<'_> {
    fn knows(&self, name: &str) -> bool {
        self.children.contains(name) || self.items.contains(name) || self.imports.contains_key(name)
    }
}
