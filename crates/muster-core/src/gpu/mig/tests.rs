//! Tests of MIG layouts: invariants over all tables, and the recorded output of real cards.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::tables::*;
use super::*;

const TABLES: [&MigTable; 10] = [
    &A30_24GB,
    &A100_40GB,
    &A100_80GB,
    &H100_PCIE_80GB,
    &H100_SXM_80GB,
    &H100_94GB,
    &GH200_96GB,
    &H200_141GB,
    &B200_180GB,
    &RTX_PRO_6000_96GB,
];

/// Parses a layout: `3g.71gb@0 1g.18gb@4`.
fn layout(table: &MigTable, written: &str) -> MigLayout {
    let instance = |word: &str| {
        let (name, start) = word.split_once('@').expect("a profile and a start");
        let profile = table.profile(name).expect("a profile of the table");
        Instance { start: start.parse().expect("a start"), profile }
    };
    written.split_whitespace().map(instance).collect()
}

fn named(table: &MigTable, name: &str) -> u8 {
    table.profile(name).expect("a profile of the table")
}

/// Every legal layout, by checking all sets of instances: the slow reference implementation.
fn all_legal(table: &MigTable) -> Vec<MigLayout> {
    let instances = (0..table.profiles.len() as u8).flat_map(|profile| {
        let starts = table.profiles[usize::from(profile)].starts;
        starts.iter().map(move |start| Instance { start: *start, profile })
    });
    let mut legal = vec![MigLayout::default()];
    for instance in instances {
        let more: Vec<MigLayout> = legal.iter().map(|each| each.with(instance)).collect();
        legal.extend(more.into_iter().filter(|each| table.is_legal(each).is_ok()));
    }
    legal
}

#[test]
fn h200_profiles_match_recorded_nvidia_smi_output() {
    // Name, id, instances, GiB and multiprocessors as `-lgip` printed them, starts as `-lgipp` did.
    let recorded = [
        "MIG 1g.18gb 19 7/7 16.00 16 {0,1,2,3,4,5,6}:1",
        "MIG 1g.18gb+me 20 1/1 16.00 16 {0,1,2,3,4,5,6}:1",
        "MIG 1g.35gb 15 4/4 32.50 26 {0,2,4,6}:2",
        "MIG 2g.35gb 14 3/3 32.50 32 {0,2,4}:2",
        "MIG 3g.71gb 9 2/2 69.75 60 {0,4}:4",
        "MIG 4g.71gb 5 1/1 69.75 64 {0}:4",
        "MIG 7g.141gb 0 1/1 140.00 132 {0}:8",
    ];
    let printed = H200_141GB.profiles.iter().map(|each| {
        let (gib, most) = (each.memory_mib as f64 / 1_024.0, each.instances_max);
        let starts: Vec<String> = each.starts.iter().map(u8::to_string).collect();
        let places = format!("{{{}}}:{}", starts.join(","), each.memory_slices);
        let (name, id, sms) = (each.name, each.nvml_id, each.multiprocessors);
        format!("MIG {name} {id} {most}/{most} {gib:.2} {sms} {places}")
    });
    assert_eq!(printed.collect::<Vec<_>>(), recorded);
    // Compute slices as NVML reports them.
    assert!(H200_141GB.profiles.iter().map(|each| each.compute_slices).eq([1, 1, 1, 2, 3, 4, 7]));
}

#[test]
fn profile_names_match_their_compute_and_memory() {
    for profile in TABLES.iter().flat_map(|table| table.profiles) {
        let (compute, memory) = profile.name.split_once("g.").unwrap();
        assert_eq!(compute, profile.compute_slices.to_string(), "{}", profile.name);
        let gigabytes: u64 = memory.split_once("gb").unwrap().0.parse().unwrap();
        assert!(profile.memory_mib <= gigabytes * 1_024, "{}", profile.name);
        assert!(profile.memory_mib * 100 >= gigabytes * 1_000_000_000 / 1_048_576 * 94, "{}", profile.name);
    }
}

#[test]
fn an_a100_has_the_19_layouts_of_the_mig_user_guide() {
    let classic = ["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"].map(|name| named(&A100_40GB, name));
    let is_classic = |layout: &MigLayout| layout.instances().iter().all(|each| classic.contains(&each.profile));
    assert_eq!(A100_40GB.layouts().into_iter().filter(is_classic).count(), 19);
}

#[test]
fn known_a100_layouts_are_legal_or_refused_with_the_reason() {
    let legal = [
        "3g.40gb@0 3g.40gb@4",
        "4g.40gb@0 3g.40gb@4",
        "4g.40gb@0 2g.20gb@4 1g.10gb@6",
        "2g.20gb@0 2g.20gb@2 2g.20gb@4 1g.10gb@6",
        "1g.20gb@0 1g.20gb@2 1g.20gb@4 1g.20gb@6",
        "1g.10gb@0 1g.10gb@1 1g.10gb@2 1g.10gb@3 1g.10gb@4 1g.10gb@5 1g.10gb+me@6",
    ];
    for written in legal {
        assert_eq!(A100_80GB.is_legal(&layout(&A100_80GB, written)), Ok(()), "{written}");
    }
    let illegal = [
        ("3g.40gb@0 3g.40gb@4 1g.10gb@6", "`3g.40gb` and `1g.10gb` overlap"),
        ("3g.40gb@0 4g.40gb@0", "`3g.40gb` and `4g.40gb` overlap"),
        ("2g.20gb@6", "`2g.20gb` cannot begin at 6"),
        ("1g.10gb@7", "`1g.10gb` cannot begin at 7"),
        ("1g.10gb+me@0 1g.10gb+me@1", "2 instances of `1g.10gb+me`, a device has at most 1"),
    ];
    for (written, why) in illegal {
        let problem = A100_80GB.is_legal(&layout(&A100_80GB, written)).unwrap_err();
        assert_eq!(problem.to_string(), why, "{written}");
    }
}

#[test]
fn unknown_profiles_two_media_extensions_and_excess_compute_are_illegal() {
    let unknown = MigLayout::from(vec![Instance { start: 0, profile: 9 }]);
    assert_eq!(H200_141GB.is_legal(&unknown), Err(IllegalLayout::UnknownProfile { profile: 9 }));
    assert_eq!(H200_141GB.free_starts(&MigLayout::default(), 9).count(), 0);

    let both = layout(&A30_24GB, "1g.6gb+me@0 2g.12gb+me@2");
    assert_eq!(A30_24GB.is_legal(&both), Err(IllegalLayout::TwoMediaExtensions));

    // In every real table memory slices run out before compute slices.
    let few_slices = MigTable { compute_slices: 6, ..H200_141GB };
    let full = layout(&few_slices, "4g.71gb@0 3g.71gb@4");
    assert_eq!(few_slices.is_legal(&full), Err(IllegalLayout::TooManyComputeSlices { wanted: 7, most: 6 }));
    assert_eq!(few_slices.free_starts(&layout(&few_slices, "4g.71gb@0"), named(&few_slices, "3g.71gb")).count(), 0);
}

#[test]
fn each_profile_fits_exactly_its_maximum_instances() {
    for table in TABLES {
        for (index, profile) in (0..).zip(table.profiles) {
            let most = u32::from(profile.instances_max);
            assert!(table.layout_for(&MigLayout::default(), &[(index, most)]).is_some(), "{}", profile.name);
            assert!(table.layout_for(&MigLayout::default(), &[(index, most + 1)]).is_none(), "{}", profile.name);
        }
    }
}

#[test]
fn layouts_are_exactly_the_maximal_legal_ones() {
    for table in TABLES {
        let full = table.layouts();
        assert!(full.is_sorted() && full.iter().collect::<BTreeSet<_>>().len() == full.len());
        let legal = all_legal(table);
        assert!(full.iter().all(|each| legal.contains(each)));
        for each in &full {
            let larger = legal.iter().filter(|other| other.contains(each)).count();
            assert_eq!(larger, 1, "{each:?} can be added to");
        }
        for each in &legal {
            assert!(full.iter().any(|larger| larger.contains(each)), "{each:?} is in none");
        }
    }
}

#[test]
fn best_start_leaves_most_further_placements() {
    let table = &H200_141GB;
    let cases = [
        ("", "1g.18gb", Some(6)),
        ("", "1g.35gb", Some(6)),
        ("", "2g.35gb", Some(4)),
        ("", "3g.71gb", Some(4)),
        ("", "4g.71gb", Some(0)),
        ("1g.18gb@6", "1g.18gb", Some(4)),
        ("1g.18gb@6", "2g.35gb", Some(4)),
        ("1g.18gb@6", "3g.71gb", Some(0)),
        ("1g.18gb@4 1g.18gb@6", "1g.18gb", Some(5)),
        ("1g.18gb@0 1g.18gb@6", "1g.18gb", Some(1)),
        ("3g.71gb@0 3g.71gb@4", "1g.18gb", None),
    ];
    for (before, name, start) in cases {
        let found = table.best_start(&layout(table, before), named(table, name));
        assert_eq!(found, start, "{name} beside {before}");
    }
}

#[test]
fn smallest_profile_has_enough_memory_and_compute() {
    let cases: [(&MigTable, u64, u32, Option<&str>); 9] = [
        (&H200_141GB, 0, 0, Some("1g.18gb")),
        (&H200_141GB, 16_384, 122, Some("1g.18gb")),
        (&H200_141GB, 16_385, 0, Some("1g.35gb")),
        (&H200_141GB, 16_000, 143, Some("1g.35gb")),
        (&H200_141GB, 33_280, 200, Some("2g.35gb")),
        (&H200_141GB, 40_000, 100, Some("3g.71gb")),
        (&H200_141GB, 143_361, 0, None),
        (&A100_40GB, 4_000, 143, Some("1g.5gb")),
        (&RTX_PRO_6000_96GB, 24_000, 500, Some("2g.48gb")),
    ];
    for (table, memory_mib, compute_milli, name) in cases {
        let found = table.smallest_profile(memory_mib, compute_milli);
        assert_eq!(found.map(|index| table.profiles[usize::from(index)].name), name, "{memory_mib} MiB");
    }
    // Profiles with media extensions are never chosen by size, even if no other profile is left.
    let media_only = MigTable { profiles: &H200_141GB.profiles[1..2], ..H200_141GB };
    assert_eq!(media_only.smallest_profile(0, 0), None);
    assert_eq!(H200_141GB.compute_milli(named(&H200_141GB, "MIG 7g.141gb")), 1_000);
    assert_eq!(H200_141GB.compute_milli(7), 0);
}

#[test]
fn requested_instances_are_added_to_the_kept_ones() {
    let table = &H200_141GB;
    let [one, two, three] = ["1g.18gb", "2g.35gb", "3g.71gb"].map(|name| named(table, name));
    let keep = layout(table, "1g.18gb@2");
    let found = table.layout_for(&keep, &[(three, 1), (one, 1)]);
    assert_eq!(found, Some(layout(table, "1g.18gb@2 1g.18gb@3 3g.71gb@4")), "room for two more is left");
    assert_eq!(table.layout_for(&keep, &[(three, 2)]), None);
    assert_eq!(
        table.layout_for(&keep, &[(two, 2), (one, 2)]),
        Some(layout(table, "2g.35gb@0 1g.18gb@2 1g.18gb@3 2g.35gb@4 1g.18gb@6"))
    );
    assert_eq!(table.layout_for(&keep, &[(one, u32::MAX), (two, u32::MAX)]), None);
    assert_eq!(table.layout_for(&keep, &[]), Some(keep));
    assert_eq!(table.layout_for(&layout(table, "3g.71gb@0 1g.18gb@2"), &[]), None);
}

fn any_table() -> impl Strategy<Value = &'static MigTable> {
    proptest::sample::select(TABLES.to_vec())
}

/// Random instances that form a legal layout.
fn any_legal() -> impl Strategy<Value = (&'static MigTable, MigLayout)> {
    let instances = proptest::collection::vec((0_u8..7, 0_u8..12), 0..12);
    (any_table(), instances).prop_map(|(table, instances)| {
        let mut layout = MigLayout::default();
        for (profile, start) in instances {
            let more = layout.with(Instance { start, profile });
            if table.is_legal(&more).is_ok() {
                layout = more;
            }
        }
        (table, layout)
    })
}

proptest! {
    /// `free_starts` returns exactly the starts that give a legal layout, and `best_start` is one of them.
    #[test]
    fn free_starts_are_the_legal_ones((table, layout) in any_legal(), profile in 0_u8..8) {
        let legal = |start: &u8| table.is_legal(&layout.with(Instance { start: *start, profile })).is_ok();
        let expected: Vec<u8> = (0..16).filter(legal).collect();
        let free: Vec<u8> = table.free_starts(&layout, profile).collect();
        prop_assert_eq!(&free, &expected);
        let best = table.best_start(&layout, profile);
        prop_assert_eq!(best.is_none(), free.is_empty());
        prop_assert!(best.is_none_or(|start| free.contains(&start)));
    }

    /// No smaller plain profile has enough memory and compute.
    #[test]
    fn no_smaller_profile_is_enough(table in any_table(), memory_mib in 0_u64..200_000, milli in 0_u32..1_100) {
        let size = |profile: &Profile| (profile.compute_slices, profile.memory_slices);
        let enough = |(index, profile): &(u8, &Profile)| {
            profile.is_plain() && profile.memory_mib >= memory_mib && table.compute_milli(*index) >= milli
        };
        let sizes: Vec<_> = (0..).zip(table.profiles).filter(enough).map(|(_, each)| size(each)).collect();
        let found = table.smallest_profile(memory_mib, milli);
        prop_assert_eq!(found.map(|index| size(&table.profiles[usize::from(index)])), sizes.into_iter().min());
    }

    /// `layout_for` finds a layout exactly if one exists; it contains `keep` and the wanted instances.
    #[test]
    fn a_layout_is_found_exactly_if_one_exists(
        (table, keep) in any_legal(),
        wanted in proptest::collection::vec((0_u8..7, 0_u32..3), 0..3),
    ) {
        let count = |layout: &MigLayout, profile: u8| {
            layout.instances().iter().filter(|each| each.profile == profile).count() as u32
        };
        let requested = |profile: u8| -> u32 {
            wanted.iter().filter(|(each, _)| *each == profile).map(|(_, count)| count).sum()
        };
        let serves = |layout: &MigLayout| {
            layout.contains(&keep) && (0..7).all(|each| count(layout, each) == count(&keep, each) + requested(each))
        };
        match table.layout_for(&keep, &wanted) {
            Some(found) => prop_assert!(serves(&found) && table.is_legal(&found).is_ok()),
            None => prop_assert!(!all_legal(table).iter().any(serves)),
        }
    }
}
