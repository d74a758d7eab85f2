use std::time::Duration;

use bytes::Bytes;

use super::slot::FORM_COST;
use super::*;

const FORM: FormId = FormId(1);
const OTHER: FormId = FormId(2);

/// A form of so many bytes; whether it had to be made.
#[track_caller]
fn ask(slot: &FormSlot, cache: &Arc<FormCache>, id: FormId, len: usize) -> bool {
    let mut made = false;
    let bytes = slot.get_or_make(cache, id, || {
        made = true;
        Ok::<_, ()>(vec![7; len])
    });
    assert_eq!(bytes, Ok(Bytes::from(vec![7; len])));
    made
}

fn room_for(forms: usize, len: usize) -> Arc<FormCache> {
    FormCache::new(forms * (len + FORM_COST))
}

#[test]
fn a_form_is_made_once_and_goes_with_its_entry() {
    let cache = room_for(10, 100);
    let slot = FormSlot::default();
    assert_eq!(slot.get(FORM), None);
    assert!(ask(&slot, &cache, FORM, 100));
    assert!(!ask(&slot, &cache, FORM, 100));
    assert!(ask(&slot, &cache, OTHER, 50));
    assert_eq!(cache.held(), 150 + 2 * FORM_COST);
    assert_eq!(slot.clone().get(FORM), None, "a clone may be changed");
    let failed = slot.get_or_make(&cache, FormId(3), || Err("no"));
    assert_eq!(failed, Err("no"));
    drop(slot);
    assert_eq!(cache.held(), 0);
}

#[test]
fn the_limit_is_never_passed_and_what_is_in_use_stays() {
    let cache = room_for(3, 100);
    let slots: Vec<FormSlot> = (0..4).map(|_| FormSlot::default()).collect();
    for slot in &slots {
        assert!(ask(slot, &cache, FORM, 100));
        assert!(cache.held() <= 3 * (100 + FORM_COST));
    }
    assert!(!ask(&slots[0], &cache, FORM, 100), "at the limit");
    assert!(
        ask(&slots[3], &cache, FORM, 100),
        "past the limit it is made for each reader"
    );
    cache.skip(limits::FORM_IN_USE);
    assert!(!ask(&slots[1], &cache, FORM, 100), "used");
    assert!(ask(&slots[3], &cache, FORM, 100));
    assert!(
        !ask(&slots[3], &cache, FORM, 100),
        "there was an unused one in its place"
    );
    assert!(!ask(&slots[1], &cache, FORM, 100));
    assert_eq!(cache.held(), 3 * (100 + FORM_COST), "no more go than have to");
    assert!(
        ask(&FormSlot::default(), &cache, FORM, 1000),
        "larger than all of it"
    );
}

#[test]
fn what_nobody_asks_for_goes_when_others_come() {
    let cache = room_for(100, 10);
    let slots: Vec<FormSlot> = (0..10).map(|_| FormSlot::default()).collect();
    for slot in &slots[..5] {
        ask(slot, &cache, FORM, 10);
    }
    cache.skip(limits::FORM_IDLE - Duration::from_secs(1));
    for slot in &slots[5..] {
        ask(slot, &cache, FORM, 10);
    }
    assert!(slots[..5].iter().all(|slot| slot.get(FORM).is_some()), "not yet");
    cache.skip(limits::FORM_IDLE);
    let more: Vec<FormSlot> = (0..5).map(|_| FormSlot::default()).collect();
    for slot in &more {
        ask(slot, &cache, FORM, 10);
    }
    assert!(slots.iter().all(|slot| slot.get(FORM).is_none()));
    assert_eq!(cache.held(), 5 * (10 + FORM_COST));
    assert!(
        ask(&slots[0], &cache, FORM, 10) && !ask(&slots[0], &cache, FORM, 10),
        "it can come back"
    );
}

#[test]
fn entries_that_have_gone_are_forgotten() {
    let cache = room_for(1_000, 10);
    let kept: Vec<FormSlot> = (0..10).map(|_| FormSlot::default()).collect();
    for slot in &kept {
        ask(slot, &cache, FORM, 10);
    }
    for _ in 0..10_000 {
        ask(&FormSlot::default(), &cache, FORM, 10);
    }
    assert!(cache.round_len() < 4 * kept.len(), "{}", cache.round_len());
    assert_eq!(cache.held(), kept.len() * (10 + FORM_COST));
}

#[test]
fn readers_of_many_threads_stay_within_the_limit() {
    let cache = room_for(8, 64);
    let slots: Vec<FormSlot> = (0..32).map(|_| FormSlot::default()).collect();
    std::thread::scope(|scope| {
        for at in 0..4 {
            let (cache, slots) = (&cache, &slots);
            scope.spawn(move || {
                for round in 0..2_000 {
                    let id = FormId(round % 3);
                    let slot = &slots[usize::try_from(round * 7 + at).unwrap_or_default() % slots.len()];
                    let bytes = slot.get_or_make(cache, id, || Ok::<_, ()>(vec![7; 64]));
                    assert!(bytes.is_ok() && cache.held() <= cache.limit);
                    if round % 5 == 0 {
                        cache.skip(limits::FORM_IN_USE);
                    }
                }
            });
        }
    });
    drop(slots);
    assert_eq!(cache.held(), 0);
}

#[test]
fn identities_are_never_used_twice() {
    let cache = FormCache::new(0);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..1_000 {
        let owner: Owner = Arc::new(String::from("a resource"));
        let id = cache.id(&owner, 1);
        assert_eq!(cache.id(&owner, 1), id);
        assert!(seen.insert(id) && seen.insert(cache.id(&owner, 2)));
    }
    assert!(cache.ids.lock().len() <= 130, "{}", cache.ids.lock().len());
}

fn key(cache: &FormCache, form: FormId, follows: bool, objects: &[(&str, u64)]) -> BlockKey {
    BlockKey::new(cache, form, follows, objects.iter().copied())
}

fn block(key: &BlockKey) -> Arc<Block> {
    Block::new(key.clone(), Bytes::from(vec![1; 100]), 1, 1_000, None)
}

#[test]
fn blocks_are_of_one_state_of_their_objects() {
    let cache = FormCache::new(10_000);
    let first = key(&cache, FORM, false, &[("a", 1), ("b", 2)]);
    let of_first = block(&first);
    cache.keep_block(&of_first);
    assert!(cache.block(&first).is_some());
    for other in [
        key(&cache, OTHER, false, &[("a", 1), ("b", 2)]),
        key(&cache, FORM, true, &[("a", 1), ("b", 2)]),
        key(&cache, FORM, false, &[("a", 1), ("b", 3)]),
        key(&cache, FORM, false, &[("a", 1)]),
        key(&cache, FORM, false, &[("a", 1), ("b", 2), ("c", 3)]),
        key(&cache, FORM, false, &[("b", 2), ("a", 1)]),
        key(&cache, FORM, false, &[("ab", 1), ("", 2)]),
    ] {
        assert!(cache.block(&other).is_none(), "{other:?}");
    }
    let newer = key(&cache, FORM, false, &[("a", 1), ("b", 3)]);
    let held = cache.held();
    cache.keep_block(&block(&newer));
    assert_eq!(cache.held(), held, "it takes the place of the older state");
    assert!(cache.block(&newer).is_some() && cache.block(&first).is_none());
}

#[test]
fn blocks_have_the_same_limit_as_forms() {
    let slot = FormSlot::default();
    let weight = block(&key(&FormCache::new(0), FORM, false, &[("a", 1)])).weight();
    let cache = FormCache::new(2 * weight + 100 + FORM_COST);
    ask(&slot, &cache, FORM, 100);
    let names = ["a", "b", "c"];
    let keys = names.map(|name| key(&cache, FORM, false, &[(name, 1)]));
    for key in &keys {
        cache.keep_block(&block(key));
    }
    let kept = |cache: &FormCache| keys.each_ref().map(|key| cache.block(key).is_some());
    assert_eq!(kept(&cache), [true, true, false]);
    assert_eq!(cache.held(), cache.limit);
    cache.skip(limits::FORM_IN_USE);
    cache.keep_block(&block(&keys[2]));
    assert!(cache.block(&keys[2]).is_some(), "something unused has gone");
    assert!(cache.held() <= cache.limit);
}
