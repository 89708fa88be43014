use super::*;

const LAB_CLUSTER: &str = r#"
nodes:
  - name: gpu
    count: 3
    cpus: 64
    memory_gib: 512
    gpus: { model: "NVIDIA H100 80GB HBM3", count: 8, memory_mib: 81559, power_limit_watts: 700 }
    rack: r1
    labels: { zone: a }
  - name: mixed
    cpus: 16
    memory_gib: 64
    gpus:
      - { model: "NVIDIA A100-SXM4-40GB", count: 2, memory_mib: 40960, nvlink: none }
      - { model: "NVIDIA A10", count: 3, memory_mib: 23028, nvlink: pairs }
  - { name: login, cpus: 4, memory_gib: 8 }
"#;

fn parse_error(text: &str) -> String {
    Cluster::parse(text).unwrap_err().to_string()
}

#[test]
fn node_groups_expand_to_numbered_nodes() {
    let nodes = Cluster::parse(LAB_CLUSTER).unwrap().registrations();
    let names: Vec<_> = nodes.iter().map(|node| node.node.as_str()).collect();
    assert_eq!(names, ["gpu01", "gpu02", "gpu03", "mixed", "login"]);
    let first = &nodes[0];
    assert_eq!((first.cpus, first.memory_mib, first.gpus.len()), (64, 512 * 1024, 8));
    assert_eq!((first.rack.as_deref(), first.labels["zone"].as_str()), (Some("r1"), "a"));
    assert_eq!(first.gpus[0].power_limit_milliwatts, Some(700_000));
    assert!(first.simulated);
}

#[test]
fn gpus_are_split_over_two_numa_nodes_and_meshed_by_nvlink() {
    let nodes = Cluster::parse(LAB_CLUSTER).unwrap().registrations();
    let numa: Vec<_> = nodes[0].gpus.iter().map(|gpu| gpu.numa_node.unwrap()).collect();
    assert_eq!(numa, [0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(nodes[0].gpus[2].nvlink, [0, 1, 3, 4, 5, 6, 7]);
    let links: Vec<_> = nodes[3].gpus.iter().map(|gpu| gpu.nvlink.clone()).collect();
    assert_eq!(links, [vec![], vec![], vec![3], vec![2], vec![]], "groups are not linked to each other");
}

#[test]
fn device_ids_are_unique_and_stay_the_same() {
    let first = Cluster::parse(LAB_CLUSTER).unwrap();
    assert_eq!(first, Cluster::parse(LAB_CLUSTER).unwrap());
    let nodes = first.registrations();
    let ids: BTreeSet<_> = nodes.iter().flat_map(|node| &node.gpus).map(|gpu| &gpu.uuid).collect();
    assert_eq!(ids.len(), 3 * 8 + 5);
    assert_eq!(nodes[0].gpus[0].uuid, gpu_uuid("gpu01", 0));
    assert_eq!(gpu_uuid("gpu01", 0).len(), "GPU-00000000-0000-0000-0000-000000000000".len());
}

#[test]
fn the_default_dev_cluster_has_two_nodes_of_four_gpus() {
    let nodes = Cluster::default_dev().registrations();
    let sizes: Vec<_> = nodes.iter().map(|n| (n.node.as_str(), n.cpus, n.memory_mib, n.gpus.len())).collect();
    assert_eq!(sizes, [("gpu01", 32, 256 * 1024, 4), ("gpu02", 32, 256 * 1024, 4)]);
    assert_eq!(nodes[1].gpus[3].model, "NVIDIA H100 80GB HBM3");
}

#[test]
fn node_numbers_are_padded_so_that_names_sort() {
    let nodes = Cluster::parse("nodes: [{name: n, count: 150, cpus: 1, memory_gib: 1}]").unwrap().registrations();
    assert_eq!((nodes[0].node.as_str(), nodes[149].node.as_str()), ("n001", "n150"));
}

#[test]
fn an_unknown_key_is_refused_with_line_and_suggestion() {
    let text = "nodes:\n  - name: a\n    cpu: 4\n    memory_gib: 8\n";
    assert_eq!(parse_error(text), "line 3, column 5: unknown key `cpu`; did you mean `cpus`?");
    let text = "nodes:\n  - name: a\n    cpus: 4\n    memory_gib: 8\n    gpus:\n      modle: x\n      count: 1\n";
    assert_eq!(parse_error(text), "line 6, column 7: unknown key `modle`; did you mean `model`?");
    assert_eq!(parse_error("node: []\n"), "line 1, column 1: unknown key `node`; did you mean `nodes`?");
}

#[test]
fn out_of_range_numbers_are_refused_with_line_and_column() {
    let node = |rest: &str| format!("nodes:\n  - name: a\n    memory_gib: 8\n    {rest}\n");
    assert_eq!(parse_error(&node("cpus: 0")), "line 4, column 11: `cpus` is 0; it must be between 1 and 8192");
    let many = "cpus: 4\n    gpus: [{model: x, count: 60, memory_mib: 5}, {model: y, count: 5, memory_mib: 5}]";
    let message = parse_error(&node(many));
    assert!(message.starts_with("line 5") && message.contains("`gpus.count` is 65"), "{message}");
    assert!(parse_error(&node("cpus: 4\n    count: 0")).contains("`count` is 0"));
    assert!(parse_error(&node("cpus: 4\n    count: 99999999999")).contains("`count` is 99999999999"));
    let message = parse_error(&node("cpus: -3"));
    assert!(message.starts_with("line 4, column 11: "), "{message}");
}

#[test]
fn invalid_and_duplicate_node_names_are_refused() {
    let text = "nodes:\n  - {name: a01, cpus: 1, memory_gib: 1}\n  - {name: a, count: 2, cpus: 1, memory_gib: 1}\n";
    assert_eq!(parse_error(text), "line 3, column 12: there are two nodes named `a01`");
    for name in ["A", "-a", "ä", "a b", "a/b", &"a".repeat(64)] {
        let message = parse_error(&format!("nodes: [{{name: \"{name}\", cpus: 1, memory_gib: 1}}]"));
        assert!(message.contains("is not a valid node name"), "{message}");
    }
}

#[test]
fn invalid_cluster_files_are_refused_with_a_message() {
    assert_eq!(parse_error("nodes: []\n"), "the cluster has no nodes");
    for text in ["", "nodes: 7\n", "nodes: [{name: a}]\n", "nodes: [\n", "nodes: [{name: a, name: b}]\n"] {
        let message = parse_error(text);
        assert!(!message.is_empty() && !message.contains("::"), "{text:?} -> {message}");
    }
}

/// One node of a box, with further keys.
fn node_of_box(keys: &str) -> Registration {
    let text = format!("nodes: [{{name: a, {keys}}}]");
    Cluster::parse(&text).unwrap().registrations().remove(0)
}

fn numa_of_gpus(node: &Registration) -> Vec<u32> {
    node.gpus.iter().map(|gpu| gpu.numa_node.unwrap()).collect()
}

#[test]
fn a_box_sets_cpus_memory_gpus_and_topology() {
    let node = node_of_box("box: dgx-a100");
    assert_eq!((node.cpus, node.memory_mib, node.gpus.len()), (128, 2_048 * 1_024, 8));
    let gpu = &node.gpus[5];
    assert_eq!((gpu.model.as_str(), gpu.memory_mib), ("NVIDIA A100-SXM4-80GB", 81_920));
    assert_eq!((gpu.power_limit_milliwatts, gpu.pcie_switch), (Some(400_000), Some(2)));
    assert_eq!(gpu.nvlink, [0, 1, 2, 3, 4, 6, 7]);
    assert_eq!(gpu.uuid, gpu_uuid("a", 5));
    assert_eq!(numa_of_gpus(&node), [3, 3, 1, 1, 7, 7, 5, 5]);
    let sockets: Vec<_> = node.numa.iter().map(|numa| numa.socket).collect();
    assert_eq!(sockets, [0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!((node.numa[6].cpus, node.numa[6].memory_mib), (16, 256 * 1_024));
}

#[test]
fn keys_override_the_values_of_a_box() {
    let node = node_of_box("box: dgx-a100, cpus: 100, memory_gib: 512, numa_nodes: 3, pcie_switches: 0");
    assert_eq!(numa_of_gpus(&node), [0, 0, 0, 1, 1, 1, 2, 2]);
    let numa: Vec<_> = node.numa.iter().map(|numa| (numa.cpus, numa.socket)).collect();
    assert_eq!(numa, [(33, 0), (33, 0), (34, 1)], "cores are neither lost nor doubled");
    assert_eq!(node.numa.iter().map(|numa| numa.memory_mib).sum::<u64>(), 512 * 1_024);
    assert!(node.gpus.iter().all(|gpu| gpu.pcie_switch.is_none() && gpu.nvlink.len() == 7));
    let node = node_of_box("box: dgx-a100, gpus: {model: x, count: 2, memory_mib: 7, nvlink: none}, pcie_switches: 1");
    assert_eq!((node.cpus, node.gpus.len(), node.gpus[0].nvlink.len()), (128, 2, 0));
    assert_eq!((numa_of_gpus(&node), node.gpus[1].pcie_switch), (vec![0, 4], Some(0)));
    let node = node_of_box("box: gb200-tray, sockets: 1");
    assert_eq!(node.numa.iter().map(|numa| numa.socket).collect::<Vec<_>>(), [0, 0]);
    assert_eq!(numa_of_gpus(&node), [0, 0, 1, 1]);
}

#[test]
fn every_box_is_self_consistent() {
    for name in boxes::box_names() {
        let node = node_of_box(&format!("box: {name}"));
        assert_eq!(node.numa.iter().map(|numa| numa.cpus).sum::<u32>(), node.cpus, "{name}");
        assert!(!node.gpus.is_empty(), "{name}");
        for (index, gpu) in node.gpus.iter().enumerate() {
            assert!((gpu.numa_node.unwrap() as usize) < node.numa.len(), "{name}");
            for peer in &gpu.nvlink {
                let back = &node.gpus[usize::from(*peer)].nvlink;
                assert!(back.contains(&(index as u8)), "{name}: {index} is linked to {peer} but not back");
            }
            let mates =
                node.gpus.iter().filter(|mate| gpu.pcie_switch.is_some() && mate.pcie_switch == gpu.pcie_switch);
            assert!(mates.clone().all(|mate| mate.numa_node == gpu.numa_node), "{name}: a switch on two NUMA nodes");
        }
    }
    let names: BTreeSet<_> = boxes::box_names().into_iter().collect();
    assert_eq!(names.len(), boxes::box_names().len(), "a name occurs twice");
}

#[test]
fn an_unknown_box_is_refused_with_suggestion_and_list() {
    let message = parse_error("nodes:\n  - name: a\n    box: dgx-h10\n");
    assert!(
        message.starts_with("line 3, column 10: unknown box `dgx-h10`; did you mean `dgx-h100`? known boxes are "),
        "{message}"
    );
    assert!(message.contains("`workstation-rtx6000`"), "{message}");
    let message = parse_error("nodes: [{name: a, box: mainframe}]");
    assert!(message.contains("unknown box `mainframe`; known boxes are `dgx-1-v100`, "), "{message}");
}

#[test]
fn without_a_box_cores_and_memory_must_be_given() {
    let message = parse_error("nodes:\n  - name: a\n    memory_gib: 4\n");
    assert_eq!(message, "line 2, column 11: `cpus` is missing; set it, or set a `box` that defines it");
    assert!(parse_error("nodes: [{name: a, cpus: 4}]").contains("`memory_gib` is missing"));
}

#[test]
fn nodes_fill_racks_and_racks_fill_blocks() {
    let places = |keys: &str| -> Vec<String> {
        let text = format!("nodes: [{{name: n, count: 5, box: hgx-h200, {keys}}}]");
        let name = |name: Option<String>| name.unwrap_or_else(|| "-".to_string());
        let nodes = Cluster::parse(&text).unwrap().registrations();
        nodes.into_iter().map(|node| format!("{} {}", name(node.rack), name(node.block))).collect()
    };
    assert_eq!(places("nodes_per_rack: 2"), ["r1 -", "r1 -", "r2 -", "r2 -", "r3 -"]);
    let both = "nodes_per_rack: 2, racks_per_block: 2";
    assert_eq!(places(both), ["r1 b1", "r1 b1", "r2 b1", "r2 b1", "r3 b2"]);
    let named = "nodes_per_rack: 3, racks_per_block: 1, rack: hall-a-, block: row";
    assert_eq!(places(named), ["hall-a-1 row1", "hall-a-1 row1", "hall-a-1 row1", "hall-a-2 row2", "hall-a-2 row2"]);
    assert_eq!(places("rack: r7, block: b2"), ["r7 b2"; 5]);
    let message = parse_error("nodes: [{name: n, box: hgx-h200, racks_per_block: 2}]");
    assert!(message.ends_with("`racks_per_block` needs `nodes_per_rack`"), "{message}");
    assert!(parse_error("nodes: [{name: n, box: hgx-h200, nodes_per_rack: 0}]").contains("`nodes_per_rack` is 0"));
}

/// The examples of the documentation.
#[test]
fn the_documented_cluster_files_parse() {
    let header = include_str!("../cluster.rs");
    let lines = header.lines().map_while(|line| line.strip_prefix("//!"));
    let example: Vec<&str> =
        lines.skip_while(|line| *line != " ```yaml").skip(1).take_while(|line| *line != " ```").collect();
    assert_eq!(Cluster::parse(&example.join("\n")).unwrap().registrations().len(), 68);
    let guide = include_str!("../../../../docs/GETTING_STARTED.md");
    let examples: Vec<&str> =
        guide.split("<<'YAML'\n").skip(1).map(|rest| rest.split("\nYAML").next().unwrap()).collect();
    let sizes: Vec<usize> = examples.iter().map(|text| Cluster::parse(text).unwrap().registrations().len()).collect();
    assert_eq!(sizes, [4, 35]);
}
