use super::*;

const LAB: &str = r#"
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

fn refusal(text: &str) -> String {
    Cluster::parse(text).unwrap_err().to_string()
}

#[test]
fn groups_become_nodes() {
    let nodes = Cluster::parse(LAB).unwrap().registrations();
    let names: Vec<_> = nodes.iter().map(|node| node.node.as_str()).collect();
    assert_eq!(names, ["gpu01", "gpu02", "gpu03", "mixed", "login"]);
    let first = &nodes[0];
    assert_eq!((first.cpus, first.memory_mib, first.gpus.len()), (64, 512 * 1024, 8));
    assert_eq!((first.rack.as_deref(), first.labels["zone"].as_str()), (Some("r1"), "a"));
    assert_eq!(first.gpus[0].power_limit_milliwatts, Some(700_000));
    assert!(first.simulated);
}

#[test]
fn gpus_lie_in_numa_halves_and_a_full_mesh() {
    let nodes = Cluster::parse(LAB).unwrap().registrations();
    let numa: Vec<_> = nodes[0].gpus.iter().map(|gpu| gpu.numa_node.unwrap()).collect();
    assert_eq!(numa, [0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(nodes[0].gpus[2].nvlink, [0, 1, 3, 4, 5, 6, 7]);
    let links: Vec<_> = nodes[3].gpus.iter().map(|gpu| gpu.nvlink.clone()).collect();
    assert_eq!(links, [vec![], vec![], vec![3], vec![2], vec![]], "groups are not linked to each other");
}

#[test]
fn device_ids_are_unique_and_stay_the_same() {
    let first = Cluster::parse(LAB).unwrap();
    assert_eq!(first, Cluster::parse(LAB).unwrap());
    let nodes = first.registrations();
    let ids: BTreeSet<_> = nodes.iter().flat_map(|node| &node.gpus).map(|gpu| &gpu.uuid).collect();
    assert_eq!(ids.len(), 3 * 8 + 5);
    assert_eq!(nodes[0].gpus[0].uuid, uuid("gpu01", 0));
    assert_eq!(uuid("gpu01", 0).len(), "GPU-00000000-0000-0000-0000-000000000000".len());
}

#[test]
fn the_built_in_cluster() {
    let nodes = Cluster::default_dev().registrations();
    let sizes: Vec<_> = nodes.iter().map(|n| (n.node.as_str(), n.cpus, n.memory_mib, n.gpus.len())).collect();
    assert_eq!(sizes, [("gpu01", 32, 256 * 1024, 4), ("gpu02", 32, 256 * 1024, 4)]);
    assert_eq!(nodes[1].gpus[3].model, "NVIDIA H100 80GB HBM3");
}

#[test]
fn large_groups_keep_their_names_in_order() {
    let nodes =
        Cluster::parse("nodes: [{name: n, count: 150, cpus: 1, memory_gib: 1}]").unwrap().registrations();
    assert_eq!((nodes[0].node.as_str(), nodes[149].node.as_str()), ("n001", "n150"));
}

#[test]
fn unknown_keys_name_the_nearest_and_the_place() {
    let text = "nodes:\n  - name: a\n    cpu: 4\n    memory_gib: 8\n";
    assert_eq!(refusal(text), "line 3, column 5: unknown key `cpu`; did you mean `cpus`?");
    let text =
        "nodes:\n  - name: a\n    cpus: 4\n    memory_gib: 8\n    gpus:\n      modle: x\n      count: 1\n";
    assert_eq!(refusal(text), "line 6, column 7: unknown key `modle`; did you mean `model`?");
    assert_eq!(refusal("node: []\n"), "line 1, column 1: unknown key `node`; did you mean `nodes`?");
}

#[test]
fn absurd_numbers_are_refused_at_their_place() {
    let node = |rest: &str| format!("nodes:\n  - name: a\n    memory_gib: 8\n    {rest}\n");
    assert_eq!(refusal(&node("cpus: 0")), "line 4, column 11: `cpus` is 0; it must lie between 1 and 8192");
    let many =
        "cpus: 4\n    gpus: [{model: x, count: 60, memory_mib: 5}, {model: y, count: 5, memory_mib: 5}]";
    let said = refusal(&node(many));
    assert!(said.starts_with("line 5") && said.contains("`gpus.count` is 65"), "{said}");
    assert!(refusal(&node("cpus: 4\n    count: 0")).contains("`count` is 0"));
    assert!(refusal(&node("cpus: 4\n    count: 99999999999")).contains("`count` is 99999999999"));
    let said = refusal(&node("cpus: -3"));
    assert!(said.starts_with("line 4, column 11: "), "{said}");
}

#[test]
fn bad_and_double_names_are_refused() {
    let text =
        "nodes:\n  - {name: a01, cpus: 1, memory_gib: 1}\n  - {name: a, count: 2, cpus: 1, memory_gib: 1}\n";
    assert_eq!(refusal(text), "line 3, column 12: there are two nodes named `a01`");
    for name in ["A", "-a", "ä", "a b", "a/b", &"a".repeat(64)] {
        let said = refusal(&format!("nodes: [{{name: \"{name}\", cpus: 1, memory_gib: 1}}]"));
        assert!(said.contains("is not a valid node name"), "{said}");
    }
}

#[test]
fn other_texts_are_refused_with_a_sentence() {
    assert_eq!(refusal("nodes: []\n"), "the cluster has no nodes");
    for text in ["", "nodes: 7\n", "nodes: [{name: a}]\n", "nodes: [\n", "nodes: [{name: a, name: b}]\n"] {
        let said = refusal(text);
        assert!(!said.is_empty() && !said.contains("::"), "{text:?} -> {said}");
    }
}
