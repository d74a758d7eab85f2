use super::files::File;

fn text(file: &File) -> &str {
    std::str::from_utf8(file.content).expect("text")
}

/// The whole page, before compression.
const LARGEST: usize = 200_000;

#[test]
fn the_page_is_small_and_compressed_once() {
    let all: usize = File::all().iter().map(|file| file.content.len()).sum();
    assert!(all < LARGEST, "{all} bytes");
    for file in File::all() {
        let forms = file.forms();
        assert!(std::ptr::eq(forms, file.forms()), "{}", file.name);
        assert_eq!(forms.hash.len(), 32, "{}", file.name);
        let gzip = forms.gzip.as_ref().map_or(0, bytes::Bytes::len);
        assert!(gzip < file.content.len(), "{}", file.name);
    }
}

/// What a file names is there, and everything that is there is named.
#[test]
fn files_name_each_other() {
    for file in File::all() {
        let text = text(file);
        let imported = text
            .lines()
            .filter_map(|line| line.split_once("from './")?.1.split('\'').next());
        for name in imported {
            assert!(File::find(name).is_some(), "{} imports {name}", file.name);
        }
        let named = File::all()
            .iter()
            .any(|other| self::text(other).contains(file.name));
        assert!(named || file.name == "index.html", "nothing names {}", file.name);
    }
    assert!(File::find("").is_some_and(|page| page.name == "index.html"));
    assert!(File::find("../ui.rs").is_none());
}

/// The policy of the page refuses these too; they are not even tried.
#[test]
fn nothing_is_interpreted_or_fetched_from_elsewhere() {
    for file in File::all() {
        let text = text(file);
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
            "http://",
            "https://",
            " style=",
            "@import",
            "url(",
        ] {
            // The namespace of SVG is a name, not an address.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains(word), "{} has {word}", file.name);
        }
        if file.name == "index.html" {
            assert!(!text.contains("onclick") && !text.contains("<style"));
        }
    }
}
