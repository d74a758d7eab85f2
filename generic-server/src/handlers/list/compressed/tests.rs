use std::io::Read;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::blocks::ends_block;
use super::*;
use crate::handlers::fixture::{Fixture, fixture, fixture_with, request};
use crate::handlers::list::handle;
use crate::registry::cache::Entry;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PARTIALS: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PARTIALS_PROTOBUF: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// The body of a list, and whether it was compressed.
async fn list(f: &Fixture, query: &str, accept: &str, encoding: &str) -> (Vec<u8>, bool) {
    let headers = [("accept", accept), ("accept-encoding", encoding)];
    let (authorized, head) = request("ns", query, &headers);
    let response = handle(&f.resource, &authorized, &head).await.expect("lists");
    let compressed = response.headers().contains_key("content-encoding");
    if compressed {
        assert_eq!(response.headers()["content-encoding"], "gzip");
        assert_eq!(response.headers()["vary"], "Accept-Encoding");
    }
    let media = accept.split(';').next().unwrap_or_default();
    assert_eq!(response.headers()["content-type"], media);
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (body.to_vec(), compressed)
}

fn unpack(packed: &[u8]) -> Vec<u8> {
    let mut decoder = flate2::bufread::GzDecoder::new(packed);
    let mut out = Vec::new();
    decoder.read_to_end(&mut out).expect("gzip");
    assert!(
        decoder.into_inner().is_empty(),
        "one member and nothing behind it"
    );
    out
}

/// Checks that the compressed list says what the plain one does; gives the length of both.
async fn same(f: &Fixture, query: &str, accept: &str) -> (usize, usize) {
    let (plain, _) = list(f, query, accept, "").await;
    let (packed, compressed) = list(f, query, accept, "gzip").await;
    assert_eq!(compressed, plain.len() > GZIP_ABOVE, "{accept}?{query}");
    if !compressed {
        assert!(plain == packed, "{accept}?{query}");
        return (plain.len(), plain.len());
    }
    assert!(unpack(&packed) == plain, "{accept}?{query}");
    (plain.len(), packed.len())
}

/// A value of a few thousand bytes that compresses about as well as a real object: words, and a tenth of noise.
fn filler(random: &mut StdRng, words: usize) -> String {
    const WORDS: [&str; 8] = [
        "name",
        "image",
        "limits",
        "memory",
        "readiness",
        "volumeMounts",
        "kube-api-access",
        "True",
    ];
    (0..words)
        .map(|_| match random.random_range(0..10) {
            0 => format!("{:x};", random.random::<u32>()),
            _ => format!("{};", WORDS[random.random_range(0..WORDS.len())]),
        })
        .collect()
}

async fn fill(f: &Fixture, count: usize, words: usize) {
    let mut random = StdRng::seed_from_u64(3);
    for n in 0..count {
        f.put(
            "ns",
            &format!("p{n:04}"),
            &format!("l{}", n % 3),
            &filler(&mut random, words),
        )
        .await;
    }
}

#[tokio::test]
async fn compressed_lists_say_what_plain_ones_do() {
    let f = fixture(false);
    fill(&f, 130, 400).await;
    for accept in [JSON, PROTOBUF, PARTIALS, PARTIALS_PROTOBUF, TABLE] {
        for query in [
            "",
            "labelSelector=l%3Dl1",
            "limit=100",
            "limit=3",
            "labelSelector=none",
        ] {
            same(&f, query, accept).await;
            // Of blocks that are kept.
            same(&f, query, accept).await;
        }
    }
    let custom = fixture(true);
    fill(&custom, 60, 1_000).await;
    for accept in [JSON, PARTIALS, TABLE] {
        same(&custom, "", accept).await;
        same(&custom, "", accept).await;
    }
}

#[tokio::test]
async fn random_edits_never_leave_an_old_block() {
    let f = fixture(false);
    fill(&f, 150, 400).await;
    let mut random = StdRng::seed_from_u64(5);
    for round in 0..30 {
        let name = format!("p{:04}", random.random_range(0..160));
        let there = f
            .store()
            .as_system()
            .find("ns", &name)
            .await
            .expect("reads")
            .is_some();
        match random.random_range(0..4) {
            0 if there => f.remove("ns", &name).await,
            _ => {
                let words = random.random_range(1..800);
                f.put(
                    "ns",
                    &name,
                    &format!("l{}", round % 3),
                    &filler(&mut random, words),
                )
                .await;
            }
        }
        let accept = [JSON, PROTOBUF][round % 2];
        same(&f, ["", "labelSelector=l%3Dl1"][round / 2 % 2], accept).await;
    }
}

#[tokio::test]
async fn only_gzip_is_taken_for_gzip() {
    let f = fixture(false);
    fill(&f, 100, 400).await;
    let long = "gzip;q=1,".repeat(1_000);
    for (encoding, expected) in [
        ("gzip", true),
        ("deflate, gzip", true),
        ("gzip, deflate, br", true),
        ("", false),
        ("GZIP", false),
        ("gzip;q=0", false),
        ("x-gzip", false),
        ("identity;q=0, *", false),
        (",,,", false),
        (&long, false),
    ] {
        let (_, compressed) = list(&f, "", JSON, encoding).await;
        assert_eq!(compressed, expected, "{encoding}");
    }
}

#[tokio::test]
async fn blocks_compress_as_well_as_the_whole() {
    let f = fixture(false);
    fill(&f, 250, 600).await;
    for accept in [JSON, PROTOBUF] {
        let (plain, _) = list(&f, "", accept, "").await;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, &plain).expect("in memory");
        let whole = encoder.finish().expect("in memory").len();
        let (_, joined) = same(&f, "", accept).await;
        assert!(joined * 100 < whole * 105, "{accept}: {joined} for {whole}");
    }
}

async fn entries(f: &Fixture) -> Vec<Arc<Entry>> {
    let cache = f.store().as_system().cache().await.expect("starts");
    cache.snapshot().objects.values().cloned().collect()
}

fn blocks(f: &Fixture, entries: Vec<Arc<Entry>>, view: View) -> Blocks {
    let negotiated = Negotiated {
        media: Media::Json,
        view,
        pretty: false,
        gzip: true,
        recorded: false,
    };
    let layout = Layout::new(&f.resource, view, &ListMeta::default()).expect("a layout");
    Blocks::new(
        &f.resource,
        f.store().forms(),
        &negotiated,
        Items::Json(layout),
        entries.into(),
    )
}

/// The number of blocks of a list, and of those that had to be made.
async fn made(f: &Fixture, from: usize) -> (usize, usize) {
    made_as(f, from, View::Object).await
}

async fn made_as(f: &Fixture, from: usize, view: View) -> (usize, usize) {
    let mut blocks = blocks(f, entries(f).await.split_off(from), view);
    let (mut all, mut made) = (0, 0);
    loop {
        match blocks.next() {
            Next::Block(..) => all += 1,
            Next::Missing => {
                made += 1;
                blocks.make().expect("compresses");
            }
            Next::End => return (all, made),
        }
    }
}

#[tokio::test]
async fn a_write_has_one_or_two_blocks_compressed_again() {
    let f = fixture(false);
    fill(&f, 600, 400).await;
    let (all, first) = made(&f, 0).await;
    assert!(all == first && (6..40).contains(&all), "{all}, {first}");
    assert_eq!(made(&f, 0).await, (all, 0));
    let mut random = StdRng::seed_from_u64(9);
    for _ in 0..20 {
        let name = format!("p{:04}", random.random_range(0..600));
        f.put("ns", &name, "x", &filler(&mut random, 400)).await;
        let (_, again) = made(&f, 0).await;
        assert!((1..=2).contains(&again), "{name}: {again}");
    }
    f.remove("ns", "p0300").await;
    let (_, again) = made(&f, 0).await;
    assert!((1..=4).contains(&again), "a removal: {again}");
    // A list that begins elsewhere shares what comes behind its first blocks.
    let (_, again) = made(&f, 123).await;
    assert!((1..=4).contains(&again), "a page: {again}");
}

/// Puts objects whose JSON is of exactly these lengths.
async fn sized(f: &Fixture, sizes: impl IntoIterator<Item = usize>) -> Vec<Arc<Entry>> {
    for (n, size) in sizes.into_iter().enumerate() {
        let (name, mut filler) = (format!("s{n:03}"), size);
        loop {
            f.put("ns", &name, "x", &"x".repeat(filler)).await;
            let found = f.store().as_system().find("ns", &name).await.expect("reads");
            let found = found.expect("it is there").json.len();
            if found == size {
                break;
            }
            filler = filler + size - found;
        }
    }
    entries(f).await
}

/// How many objects each block of a list has.
fn members(f: &Fixture, entries: Vec<Arc<Entry>>) -> Vec<usize> {
    let mut blocks = blocks(f, entries, View::Object);
    std::iter::from_fn(|| blocks.find().map(|(members, _)| members.len())).collect()
}

#[tokio::test]
async fn blocks_end_within_their_bounds() {
    // An object of more than half of the least size always ends a block that is large enough.
    const FIRST: usize = 20 * 1024;
    const REST: usize = limits::BLOCK_LEAST_BYTES - FIRST;
    for (second, expected) in [(REST, vec![2, 2]), (REST - 1, vec![3, 1])] {
        let f = fixture(false);
        let entries = sized(&f, [FIRST, second, REST, FIRST]).await;
        assert_eq!(members(&f, entries), expected, "{second}");
    }
    // Of objects whose names end no block: the most that one may have.
    const EIGHTH: usize = limits::BLOCK_MOST_BYTES / 8;
    for (odd, expected) in [(EIGHTH, vec![8, 2]), (EIGHTH - 1, vec![9, 1])] {
        let f = fixture(false);
        let mut all = sized(&f, [odd; 40].into_iter().chain([EIGHTH; 40])).await;
        let mut ending = all.split_off(40);
        all.retain(|entry| !ends_block(entry));
        ending.retain(|entry| !ends_block(entry));
        ending.truncate(9);
        all.truncate(1);
        all.extend(ending);
        assert_eq!(members(&f, all), expected, "{odd}");
    }
}

/// A block that others have replaced meanwhile is made again, and each that is held on to stays in its place.
#[tokio::test]
async fn blocks_keep_their_order_while_others_write() {
    let f = fixture(false);
    fill(&f, 400, 400).await;
    let negotiated = Negotiated {
        media: Media::Protobuf,
        view: View::Object,
        pretty: false,
        gzip: true,
        recorded: false,
    };
    let of = |entries: Vec<Arc<Entry>>| {
        let messages = Messages::new(&f.resource, View::Object).expect("messages");
        let items = Items::Protobuf(messages);
        Blocks::new(&f.resource, f.store().forms(), &negotiated, items, entries.into())
    };
    // As a body is polled: what is missing is asked for twice.
    let sums = |mut blocks: Blocks| {
        let mut sums = Vec::new();
        loop {
            match blocks.next() {
                Next::Block(block, _) => sums.push((block.crc, block.len)),
                Next::Missing => {
                    assert!(matches!(blocks.next(), Next::Missing));
                    blocks.make().expect("compresses");
                }
                Next::End => return sums,
            }
        }
    };
    let mut random = StdRng::seed_from_u64(17);
    sums(of(entries(&f).await));
    f.put("ns", "p0390", "x", &filler(&mut random, 400)).await;
    let state = entries(&f).await;
    let mut measured = of(state.clone());
    measured.measure().await.expect("compresses");
    for name in ["p0000", "p0200"] {
        f.put("ns", name, "x", &filler(&mut random, 400)).await;
        sums(of(entries(&f).await));
    }
    let (got, expected) = (sums(measured), sums(of(state)));
    assert!(got.len() > 3);
    assert_eq!(got, expected);
}

#[tokio::test]
async fn many_lists_in_many_forms_stay_within_the_budget() {
    const LIMIT: usize = 1 << 19;
    let f = fixture_with(false, LIMIT);
    fill(&f, 200, 400).await;
    let mut asked = 0;
    for from in 0..3 {
        for accept in [JSON, PROTOBUF, PARTIALS, PARTIALS_PROTOBUF, TABLE] {
            for encoding in ["", "gzip"] {
                for query in [
                    "",
                    "labelSelector=l%3Dl1",
                    "labelSelector=l%21%3Dl1",
                    "fieldSelector=metadata.name%21%3D",
                ] {
                    let query = match query.starts_with("field") {
                        true => format!("{query}p{from:04}"),
                        false => query.to_string(),
                    };
                    list(&f, &query, accept, encoding).await;
                    assert!(f.store().forms().held() <= LIMIT);
                    asked += 1;
                }
            }
        }
        f.store().forms().skip(limits::FORM_IN_USE / 4);
    }
    assert_eq!(asked, 120);
    assert!(f.store().forms().held() > LIMIT / 2, "what fits is kept");
    same(&f, "", PROTOBUF).await;
}

#[tokio::test]
async fn rows_are_kept_while_their_ages_hold() {
    use crate::negotiate::{IncludeObject, MetaVersion};
    use machinery::time::Timestamp;
    let mut f = fixture(false);
    f.show_ages();
    let put = async |created: Timestamp| {
        for n in 0..200 {
            let name = format!("p{n:03}");
            let object = serde_json::json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": "ns", "creationTimestamp": created.to_rfc3339(), "annotations": {"a": "x".repeat(2_000)}},
            });
            let store = f.store().as_system();
            let written = match store.find("ns", &name).await.expect("reads") {
                Some(previous) => store.replace(&previous, &object, None).await,
                None => store.insert(&object, None).await,
            };
            assert!(written.is_ok());
        }
    };
    let table = View::Table(MetaVersion::V1, IncludeObject::Metadata);
    put(Timestamp::from_unix(0)).await;
    let (all, first) = made_as(&f, 0, table).await;
    assert!(all > 2 && first == all);
    assert_eq!(made_as(&f, 0, table).await, (all, 0), "ages in years");
    for accept in [TABLE, PARTIALS, PARTIALS_PROTOBUF] {
        let (plain, packed) = same(&f, "", accept).await;
        assert!(packed < plain, "{accept}");
        same(&f, "", accept).await;
    }
    put(Timestamp::now()).await;
    for _ in 0..2 {
        let (all, again) = made_as(&f, 0, table).await;
        assert_eq!(again, all, "ages in seconds");
    }
    assert_eq!(made(&f, 0).await, (all, all), "another form");
    assert_eq!(made(&f, 0).await, (all, 0));
}
