//! Reads every record of a log once and says which are damaged.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::kv::{Kv, Reader};
use super::record::{self, Header};
use super::{Rehearsal, Shared, checked, shut_down};
use crate::directory::Directory;
use crate::{Damage, OpenOptions, Revision, ScrubReport, StorageError};

/// Records looked at with one reader: a long one would keep redb from reusing pages.
const RECORDS_PER_READER: u64 = 128;
/// The same in bytes, but for the last record: what is read at once, whatever the pause behind it.
const BYTES_PER_READER: u64 = 1 << 20;

/// Sees every sound change in the order of revisions: its key, and its value where it is not a deletion.
type Visit<'v> = dyn FnMut(&str, Option<&Bytes>) + 'v;

/// A scrub on its way.
#[derive(Debug)]
pub(super) struct Scrub {
    from: Vec<u8>,
    chunk_len: u32,
    /// The newest revision of a record.
    newest: u64,
    pub(super) report: ScrubReport,
}

impl Scrub {
    pub(super) fn new(chunk_len: u32) -> Scrub {
        Scrub {
            from: record::header_range(0, None).0,
            chunk_len,
            newest: 0,
            report: ScrubReport::default(),
        }
    }

    /// Looks at some more records. Returns the bytes that it read, `None` when there are no more.
    pub(super) fn step(
        &mut self,
        reader: &dyn Reader,
        report: impl Fn(Damage) -> Arc<Damage>,
        visit: &mut Visit<'_>,
    ) -> Result<Option<u64>, StorageError> {
        let (_, to) = record::header_range(0, None);
        let (from, mut seen, mut bytes) = (self.from.clone(), 0, 0);
        let mut more = false;
        reader.scan(&from, &to, &mut |key, stored| {
            if seen == RECORDS_PER_READER || bytes >= BYTES_PER_READER {
                self.from = key.to_vec();
                more = true;
                return Ok(false);
            }
            seen += 1;
            bytes += stored.len() as u64;
            if let Some(at) = record::parse_header_key(key) {
                self.newest = self.newest.max(at.rev);
            }
            let Some((at, header)) =
                record::parse_header_key(key).and_then(|at| Some((at, Header::decode_at(at, stored)?)))
            else {
                let at = record::parse_header_key(key).unwrap_or(record::Location { rev: 0, seq: 0 });
                self.report.damaged.push(report(record::lost_header(at, stored)));
                return Ok(true);
            };
            self.report.half_headers += u64::from(checked::is_half(stored));
            match record::read_value(reader, header.wanted(at), self.chunk_len) {
                Ok(value) => {
                    bytes += value.len() as u64;
                    visit(&header.key, (!header.delete).then_some(&value));
                }
                Err(StorageError::Corrupt(what)) => {
                    // A reader need not be a snapshot: records swept meanwhile are no damage.
                    if reader.get(key)?.is_some() {
                        self.report.damaged.push(report(Damage {
                            key: Some(header.key.as_str().into()),
                            revision: Revision(at.rev),
                            place: at.seq,
                            what,
                        }));
                    }
                }
                Err(error) => return Err(error),
            }
            Ok(true)
        })?;
        self.report.records += seen;
        self.report.bytes += bytes;
        Ok(more.then_some(bytes))
    }
}

impl Scrub {
    /// The same of what is on the disk, past the engine's cache. `None` where that cannot be read, which is in the report then.
    fn step_on_disk(
        &mut self,
        kv: &dyn Kv,
        report: impl Fn(Damage) -> Arc<Damage>,
    ) -> Result<Option<Option<u64>>, StorageError> {
        let found = self.report.damaged.len();
        let stepped = match kv.disk_reader() {
            Ok(None) => return Ok(None),
            Ok(Some(reader)) => {
                let stepped = self.step(&*reader, report, &mut |_, _| {});
                if reader.unsound_pages() > 0 {
                    let what = "pages of the file fail their checksums";
                    self.report.engine.get_or_insert_with(|| what.into());
                }
                stepped
            }
            Err(error) => Err(error),
        };
        match stepped {
            Ok(read) => Ok(Some(read)),
            Err(StorageError::Corrupt(what)) => {
                self.report.damaged.truncate(found);
                self.report.engine = Some(what);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl Shared {
    /// One step of a scrub, with the time that reading as much may take.
    pub(super) fn scrub_step(
        &self,
        scrub: &mut Scrub,
        bytes_per_second: u64,
    ) -> Result<Option<Duration>, StorageError> {
        let began = Instant::now();
        let read = {
            let kv = self.kv.read();
            let kv = kv.as_ref().ok_or_else(shut_down)?;
            let report = |damage| self.damaged.report(damage);
            match scrub.step_on_disk(&**kv, report)? {
                Some(read) => read,
                None => scrub.step(&*kv.reader()?, report, &mut |_, _| {})?,
            }
        };
        Ok(read.map(|bytes| {
            let millis = bytes.saturating_mul(1000) / bytes_per_second.max(1);
            Duration::from_millis(millis).saturating_sub(began.elapsed())
        }))
    }
}

/// Reads all of a store that no process has open, the engine's own structures, too, and reports the damage. Nothing is written to the
/// engine's files: where a start would mend redb's, that is done in memory, and what would still be damaged is reported; of sled's a copy is
/// looked at, for which there has to be room beside them. Of a store of an older format only the structures are looked at.
///
/// # Errors
/// As [`open`](crate::open), and `Corrupt` when a start would not get through the data at all.
pub fn scrub(options: &OpenOptions) -> Result<ScrubReport, StorageError> {
    scrub_with(options, &mut |_, _| {})
}

/// The same, and shows every sound change to `visit`, in the order of revisions: its key, and its value where it is not a deletion.
/// The last record of a key is its current state. Where a start would mend the store, all is shown again as that would leave it.
///
/// # Errors
/// As [`scrub`].
pub fn scrub_with(
    options: &OpenOptions,
    visit: &mut dyn FnMut(&str, Option<&Bytes>),
) -> Result<ScrubReport, StorageError> {
    let directory = existing(options)?;
    let acknowledged = directory.reached().unwrap_or(0);
    let mut rehearsal = Rehearsal::open(&directory.data(), options, acknowledged)?;
    let looked = look(&mut *rehearsal.kv, acknowledged, visit);
    rehearsal.end();
    let (mut report, newest) = looked?;
    // Sound records do not make a whole store: files may be older than those that the server closed.
    if let Some(newest) = newest
        && let Err(StorageError::Gone(why)) = directory.compare(newest, report.records)
    {
        report.engine.get_or_insert(why);
    }
    Ok(report)
}

/// The directory of a store that is there.
pub(super) fn existing(options: &OpenOptions) -> Result<Directory, StorageError> {
    let dir = options.dir.as_deref().ok_or_else(|| StorageError::Engine {
        message: "a scrub needs a data directory".into(),
        source: None,
    })?;
    if !dir.exists() {
        return Err(StorageError::Gone(format!("`{}` is not there", dir.display())));
    }
    let directory = Directory::open(dir, options.engine, super::FORMATS.directory)?;
    if !directory.has_data() {
        return Err(StorageError::Gone(format!(
            "`{}` is not there",
            directory.data().display()
        )));
    }
    Ok(directory)
}

/// The report on all records, and the newest revision; none of a format without such records.
type Walked = (ScrubReport, Option<u64>);

/// Walks through a store as it is, and again as a start would mend it where the engine's own structures are damaged: a record below a
/// damaged page may be read as one that was never there.
fn look(kv: &mut dyn Kv, acknowledged: u64, visit: &mut Visit<'_>) -> Result<Walked, StorageError> {
    let as_it_is = walk(kv, visit);
    let engine = match (kv.verify(), &as_it_is) {
        (Err(StorageError::Corrupt(what)), _) => what,
        (Err(error), _) => return Err(error),
        (Ok(()), Err(StorageError::Corrupt(what))) => what.clone(),
        (Ok(()), _) => return as_it_is,
    };
    let mended = match kv.mend(acknowledged) {
        Ok(true) => walk(kv, visit),
        Ok(false) => Err(StorageError::Corrupt(engine.clone())),
        Err(error) => Err(error),
    };
    let (mut report, newest) = match (as_it_is, mended) {
        (Ok((before, _)), Ok((mut mended, newest))) => {
            mended.add_damage(before.damaged);
            (mended, newest)
        }
        (Err(StorageError::Corrupt(_)), Ok(mended)) => mended,
        (as_it_is, Err(StorageError::Corrupt(_))) => as_it_is?,
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    report.engine = Some(engine);
    Ok((report, newest))
}

fn walk(kv: &dyn Kv, visit: &mut Visit<'_>) -> Result<Walked, StorageError> {
    let reader = kv.reader()?;
    let version = record::read_u32(&*reader, record::META_FORMAT)?;
    let chunk_len = record::read_u32(&*reader, record::META_CHUNK)?;
    let (Some(2..), Some(chunk_len)) = (version, chunk_len.filter(|len| *len > 0)) else {
        return Ok((ScrubReport::default(), None));
    };
    let floor = record::read_u64(&*reader, record::META_REVISION)?.unwrap_or(0);
    let mut scrub = Scrub::new(chunk_len);
    while scrub.step(&*reader, Arc::new, visit)?.is_some() {}
    let newest = scrub.newest.max(floor);
    Ok((scrub.report, Some(newest)))
}

#[cfg(test)]
mod tests {
    use super::super::MvccStore;
    use super::*;
    use crate::{Op, Store, Txn};

    #[tokio::test]
    async fn no_more_is_read_at_once_than_may_be() {
        for (size, records) in [
            (16, RECORDS_PER_READER),
            (BYTES_PER_READER / 4, 4),
            (BYTES_PER_READER * 2, 1),
        ] {
            let store = MvccStore::memory();
            for n in 0..200 {
                let put = Op::Put {
                    key: format!("/a/{n}"),
                    value: vec![7; usize::try_from(size).unwrap()].into(),
                    ttl: None,
                };
                let txn = Txn {
                    ops: vec![put],
                    ..Txn::default()
                };
                store.commit(txn).await.unwrap();
                if n * size > 2 * BYTES_PER_READER {
                    break;
                }
            }
            let mut scrub = Scrub::new(store.shared.chunk_len);
            let rate = 1 << 30;
            let pause = store.shared.scrub_step(&mut scrub, rate).unwrap();
            assert!(pause.is_some(), "there is more");
            assert_eq!(scrub.report.records, records, "{size}");
            assert!(scrub.report.bytes < BYTES_PER_READER + size + 1024, "{size}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_scrub_waits_for_its_rate() {
        let store = MvccStore::memory();
        for n in 0..64 {
            let put = Op::Put {
                key: format!("/a/{n}"),
                value: vec![7; 256 << 10].into(),
                ttl: None,
            };
            let txn = Txn {
                ops: vec![put],
                ..Txn::default()
            };
            store.commit(txn).await.unwrap();
        }
        for rate in [1_u64 << 20, 16 << 20] {
            let began = Instant::now();
            let bytes = store.scrub(rate).await.unwrap().bytes;
            assert!(bytes >= 16 << 20);
            // Nothing follows the last of what is read at once.
            let least = (bytes - BYTES_PER_READER - (512 << 10)) as f64 / rate as f64;
            let most = bytes as f64 / rate as f64;
            let took = began.elapsed().as_secs_f64();
            assert!((least..=most + 0.1).contains(&took), "{took} at {rate}");
        }
    }
}
