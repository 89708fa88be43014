--
-- PostgreSQL database dump
--


-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: count_moved_jobs(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.count_moved_jobs() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE job_counts AS c SET jobs = c.jobs + d.more FROM (
        SELECT tenant, state, sum(one) AS more FROM (
            SELECT tenant, state, 1 AS one FROM new_jobs UNION ALL SELECT tenant, state, -1 FROM old_jobs
        ) AS moves GROUP BY tenant, state
    ) AS d WHERE c.tenant = d.tenant AND c.state = d.state AND d.more <> 0;
    INSERT INTO job_counts (tenant, state, jobs)
    SELECT tenant, state, count(*) FROM new_jobs GROUP BY tenant, state ORDER BY tenant, state
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;


--
-- Name: refuse_change_of_ended_job(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.refuse_change_of_ended_job() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'an ended job was changed' USING ERRCODE = 'check_violation';
END $$;


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: attempts; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.attempts (
    number bigint NOT NULL,
    idx bigint NOT NULL,
    attempt bigint NOT NULL,
    job text NOT NULL,
    seq bigint NOT NULL,
    tenant text NOT NULL,
    epoch bigint NOT NULL,
    state text NOT NULL,
    placed_at bigint NOT NULL,
    started_at bigint,
    stopping_at bigint,
    ended_at bigint,
    stop_cause text,
    exit text,
    exit_code bigint,
    signal bigint,
    why text DEFAULT ''::text NOT NULL,
    gpus bigint NOT NULL,
    nodes text NOT NULL,
    gpu_ms bigint DEFAULT 0 NOT NULL,
    cpu_ms bigint DEFAULT 0 NOT NULL,
    memory_gib_ms bigint DEFAULT 0 NOT NULL,
    cost_micro bigint DEFAULT 0 NOT NULL,
    charged_until bigint,
    cpus bigint,
    memory_mib bigint,
    planned_ms bigint,
    cost_per_hour_micro bigint,
    gpu_milli bigint,
    gpu_memory_mib bigint
);


--
-- Name: audit; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.audit (
    seq bigint NOT NULL,
    at_ms bigint NOT NULL,
    actor text NOT NULL,
    act text NOT NULL,
    object text NOT NULL,
    refused text,
    times bigint DEFAULT 1 NOT NULL,
    actor_kind text
);


--
-- Name: claims; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.claims (
    seq bigint NOT NULL,
    number bigint NOT NULL,
    idx bigint NOT NULL,
    job text NOT NULL,
    node text NOT NULL,
    gpus text NOT NULL,
    victims text NOT NULL,
    made_at bigint NOT NULL,
    until bigint NOT NULL,
    ended_at bigint,
    why text DEFAULT ''::text NOT NULL
);


--
-- Name: cluster; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.cluster (
    id bigint NOT NULL,
    cluster_id text NOT NULL,
    CONSTRAINT cluster_id_check CHECK ((id = 1))
);


--
-- Name: gpus; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.gpus (
    node text NOT NULL,
    idx bigint NOT NULL,
    uuid text NOT NULL,
    model text NOT NULL,
    memory_mib bigint NOT NULL,
    health text NOT NULL,
    why text NOT NULL,
    since bigint NOT NULL,
    cooling_until bigint,
    used_milli bigint DEFAULT 0 NOT NULL,
    removed_at bigint,
    used_memory_milli bigint DEFAULT 0 NOT NULL,
    mig text DEFAULT '[]'::text NOT NULL,
    CONSTRAINT gpu_memory_shares CHECK (((used_memory_milli >= 0) AND (used_memory_milli <= 1000))),
    CONSTRAINT gpu_shares CHECK (((used_milli >= 0) AND (used_milli <= 1000)))
);


--
-- Name: job_counts; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.job_counts (
    tenant text NOT NULL,
    state text NOT NULL,
    jobs bigint NOT NULL,
    CONSTRAINT job_counts_jobs_check CHECK ((jobs >= 0))
);


--
-- Name: job_labels; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.job_labels (
    label text NOT NULL,
    value text NOT NULL,
    number bigint NOT NULL
);


--
-- Name: jobs; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.jobs (
    number bigint NOT NULL,
    idx bigint NOT NULL,
    id text NOT NULL,
    tenant text NOT NULL,
    user_name text NOT NULL,
    name text NOT NULL,
    priority bigint NOT NULL,
    state text NOT NULL,
    phase text NOT NULL,
    why text DEFAULT ''::text NOT NULL,
    held_by text,
    gpus bigint NOT NULL,
    gpu_memory_mib bigint NOT NULL,
    cpus bigint NOT NULL,
    memory_mib bigint NOT NULL,
    time_limit_ms bigint,
    submitted_at bigint NOT NULL,
    placed_at bigint,
    started_at bigint,
    ended_at bigint,
    wakes_at bigint,
    attempt bigint DEFAULT 0 NOT NULL,
    nodes text DEFAULT '[]'::text NOT NULL,
    exit_code bigint,
    signal bigint,
    preemptions bigint DEFAULT 0 NOT NULL,
    restarts bigint DEFAULT 0 NOT NULL,
    requeues bigint DEFAULT 0 NOT NULL,
    gpu_ms bigint DEFAULT 0 NOT NULL,
    cpu_ms bigint DEFAULT 0 NOT NULL,
    cost_micro bigint DEFAULT 0 NOT NULL,
    labels text NOT NULL,
    gpu_milli bigint NOT NULL,
    CONSTRAINT ended_jobs_have_an_end CHECK (((state = ANY (ARRAY['completed'::text, 'failed'::text, 'cancelled'::text])) = (ended_at IS NOT NULL))),
    CONSTRAINT jobs_state_check CHECK ((state = ANY (ARRAY['pending'::text, 'running'::text, 'completed'::text, 'failed'::text, 'preempted'::text, 'cancelled'::text])))
);


--
-- Name: journal; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.journal (
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    at_ms bigint NOT NULL,
    kind text NOT NULL,
    version bigint NOT NULL,
    payload text NOT NULL,
    crc bigint NOT NULL,
    job_number bigint,
    job_idx bigint,
    chain bigint
);


--
-- Name: leader; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.leader (
    id bigint NOT NULL,
    epoch bigint NOT NULL,
    nonce bigint NOT NULL,
    holder text NOT NULL,
    expires_at bigint NOT NULL,
    CONSTRAINT leader_id_check CHECK ((id = 1))
);


--
-- Name: leases; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.leases (
    number bigint NOT NULL,
    idx bigint NOT NULL,
    attempt bigint NOT NULL,
    node text NOT NULL,
    gpu bigint NOT NULL,
    job text NOT NULL,
    seq bigint NOT NULL,
    rank bigint NOT NULL,
    tenant text NOT NULL,
    compute_milli bigint NOT NULL,
    from_ms bigint NOT NULL,
    to_ms bigint,
    slot text NOT NULL,
    memory_milli bigint NOT NULL,
    memory_mib bigint,
    CONSTRAINT leases_compute_milli_check CHECK (((compute_milli >= 1) AND (compute_milli <= 1000))),
    CONSTRAINT leases_memory_milli_check CHECK (((memory_milli >= 1) AND (memory_milli <= 1000))),
    CONSTRAINT whole_leases CHECK (((slot <> ''::text) OR ((compute_milli = 1000) AND (memory_milli = 1000))))
);


--
-- Name: nodes; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.nodes (
    id text NOT NULL,
    hostname text NOT NULL,
    address text NOT NULL,
    state text NOT NULL,
    set_by text NOT NULL,
    why text NOT NULL,
    since bigint NOT NULL,
    cpus bigint NOT NULL,
    memory_mib bigint NOT NULL,
    gpus bigint NOT NULL,
    rack text,
    power_feed text,
    agent_version text NOT NULL,
    simulated boolean NOT NULL,
    facts text NOT NULL,
    registered_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    removed_at bigint,
    declared boolean DEFAULT false NOT NULL,
    labels text,
    taints text
);


--
-- Name: policies; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.policies (
    version bigint NOT NULL,
    scope text NOT NULL,
    hash text NOT NULL,
    files text NOT NULL,
    hooks text NOT NULL,
    applied_by text NOT NULL,
    why text NOT NULL,
    applied_at bigint NOT NULL
);


--
-- Name: refinery_schema_history; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.refinery_schema_history (
    version integer NOT NULL,
    name character varying(255),
    applied_on character varying(255),
    checksum character varying(255)
);


--
-- Name: savepoint_chunks; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.savepoint_chunks (
    seq bigint NOT NULL,
    chunk bigint NOT NULL,
    crc bigint NOT NULL,
    bytes bytea NOT NULL
);


--
-- Name: savepoints; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.savepoints (
    seq bigint NOT NULL,
    chunks bigint NOT NULL,
    bytes bigint NOT NULL,
    complete boolean NOT NULL
);


--
-- Name: settings; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.settings (
    name text NOT NULL,
    value text NOT NULL,
    updated_at bigint NOT NULL
);


--
-- Name: specs; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.specs (
    number bigint NOT NULL,
    spec text NOT NULL
);


--
-- Name: submission_keys; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.submission_keys (
    tenant text NOT NULL,
    key text NOT NULL,
    number bigint NOT NULL,
    body_hash text NOT NULL,
    at_ms bigint NOT NULL
);


--
-- Name: tenants; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.tenants (
    id text NOT NULL,
    name text NOT NULL,
    email text NOT NULL,
    organization text NOT NULL,
    parent text,
    priority_tier text NOT NULL,
    weight bigint NOT NULL,
    allow_preemption boolean NOT NULL,
    can_preempt_others boolean NOT NULL,
    active boolean NOT NULL,
    max_gpus bigint,
    max_gpu_memory_mib bigint,
    max_cpus bigint,
    max_memory_mib bigint,
    max_jobs bigint,
    gpu_milli_used bigint DEFAULT 0 NOT NULL,
    gpu_memory_mib_used bigint DEFAULT 0 NOT NULL,
    cpus_used bigint DEFAULT 0 NOT NULL,
    memory_mib_used bigint DEFAULT 0 NOT NULL,
    jobs_used bigint DEFAULT 0 NOT NULL,
    gpu_milli_ceiling bigint,
    gpu_memory_mib_ceiling bigint,
    cpus_ceiling bigint,
    memory_mib_ceiling bigint,
    jobs_ceiling bigint,
    config text NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    deleted_at bigint,
    CONSTRAINT tenant_cpus CHECK ((cpus_used <= cpus_ceiling)),
    CONSTRAINT tenant_gpu_memory CHECK ((gpu_memory_mib_used <= gpu_memory_mib_ceiling)),
    CONSTRAINT tenant_gpus CHECK ((gpu_milli_used <= gpu_milli_ceiling)),
    CONSTRAINT tenant_jobs CHECK ((jobs_used <= jobs_ceiling)),
    CONSTRAINT tenant_memory CHECK ((memory_mib_used <= memory_mib_ceiling)),
    CONSTRAINT tenants_cpus_used_check CHECK ((cpus_used >= 0)),
    CONSTRAINT tenants_gpu_memory_mib_used_check CHECK ((gpu_memory_mib_used >= 0)),
    CONSTRAINT tenants_gpus_used_check CHECK ((gpu_milli_used >= 0)),
    CONSTRAINT tenants_jobs_used_check CHECK ((jobs_used >= 0)),
    CONSTRAINT tenants_memory_mib_used_check CHECK ((memory_mib_used >= 0))
);


--
-- Name: tokens; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.tokens (
    id text NOT NULL,
    hash text NOT NULL,
    name text NOT NULL,
    role text NOT NULL,
    tenant text,
    made_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint
);


--
-- Name: usage; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.usage (
    number bigint NOT NULL,
    idx bigint NOT NULL,
    attempt bigint NOT NULL,
    job text NOT NULL,
    tenant text NOT NULL,
    user_name text NOT NULL,
    gpus bigint NOT NULL,
    from_ms bigint NOT NULL,
    to_ms bigint NOT NULL,
    gpu_ms bigint NOT NULL,
    cpu_ms bigint NOT NULL,
    memory_gib_ms bigint NOT NULL,
    cost_micro bigint NOT NULL,
    energy_mj bigint DEFAULT 0 NOT NULL,
    CONSTRAINT usage_check CHECK ((to_ms >= from_ms))
);


--
-- Name: waits; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.waits (
    seq bigint NOT NULL,
    bucket text NOT NULL,
    at_ms bigint NOT NULL,
    reasons text NOT NULL
);


--
-- Name: windows; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.windows (
    seq bigint NOT NULL,
    name text NOT NULL,
    nodes text NOT NULL,
    from_ms bigint NOT NULL,
    until_ms bigint NOT NULL,
    tenant text,
    why text NOT NULL,
    booked_by text NOT NULL,
    opened_at bigint NOT NULL,
    closed_at bigint,
    closed_why text DEFAULT ''::text NOT NULL,
    CONSTRAINT windows_check CHECK ((until_ms > from_ms))
);


--
-- Data for Name: attempts; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.attempts VALUES (1, -1, 1, 'job-1', 32, 'red', 1, 'Preempted', 100, 200, 500, 1000, '{"cause":"preempted","by":"job-3"}', 'signal', NULL, 15, '', 2, '["n1"]', 900, 3600, 7200, 5, 900, 4, 8192, 60000, 20, 2000, 2000);
INSERT INTO public.attempts VALUES (3, -1, 1, 'job-3', 39, 'red', 1, 'Done', 500, NULL, NULL, 1000, NULL, 'code', 0, NULL, '', 2, '["n1"]', 900, 3600, 7200, 5, 1000, 4, 8192, NULL, NULL, 2000, 2000);
INSERT INTO public.attempts VALUES (4, 1, 1, 'job-4.1', 45, 'red', 1, 'Failed', 100, NULL, NULL, 500, NULL, 'not-started', NULL, NULL, 'no such image', 1, '["n1"]', 0, 0, 0, 0, 500, 4, 8192, NULL, NULL, 1000, 1000);


--
-- Data for Name: audit; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.audit VALUES (18, 500, 'ada', 'tenant.change', 'red', 'unknown-tenant', 2, 'token');


--
-- Data for Name: claims; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.claims VALUES (34, 3, -1, 'job-3', 'n1', '["n1/gpu-0","n1/gpu-1"]', '["job-1"]', 500, 60500, 500, 'its job has started');


--
-- Data for Name: cluster; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: gpus; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.gpus VALUES ('n1', 3, 'GPU-n1-3', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, NULL, 0, '[]');
INSERT INTO public.gpus VALUES ('n1', 4, 'GPU-n1-4', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, NULL, 0, '[]');
INSERT INTO public.gpus VALUES ('n1', 5, 'GPU-n1-5', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, NULL, 0, '[]');
INSERT INTO public.gpus VALUES ('n2', 0, 'GPU-n2-0', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, 500, 0, '[]');
INSERT INTO public.gpus VALUES ('n2', 1, 'GPU-n2-1', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, 500, 0, '[]');
INSERT INTO public.gpus VALUES ('n2', 2, 'GPU-n2-2', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, 500, 0, '[]');
INSERT INTO public.gpus VALUES ('n2', 3, 'GPU-n2-3', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, 500, 0, '[]');
INSERT INTO public.gpus VALUES ('n3', 0, 'GPU-n3-0', 'NVIDIA H200', 143000, 'healthy', '', 500, NULL, 0, NULL, 0, '[]');
INSERT INTO public.gpus VALUES ('n3', 1, 'GPU-n3-1', 'NVIDIA H200', 143000, 'healthy', '', 500, NULL, 0, NULL, 0, '[]');
INSERT INTO public.gpus VALUES ('n1', 7, 'GPU-n1-7', 'NVIDIA H200', 143000, 'degraded', '68 °C', 500, 9000, 0, NULL, 0, '[]');
INSERT INTO public.gpus VALUES ('n1', 6, 'GPU-n1-6', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, NULL, 0, '[{"profile":"1g.18gb","start":0}]');
INSERT INTO public.gpus VALUES ('n1', 0, 'GPU-n1-0', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, NULL, 0, '[]');
INSERT INTO public.gpus VALUES ('n1', 1, 'GPU-n1-1', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, NULL, 0, '[]');
INSERT INTO public.gpus VALUES ('n1', 2, 'GPU-n1-2', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, NULL, 0, '[]');


--
-- Data for Name: job_counts; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.job_counts VALUES ('red', 'running', 0);
INSERT INTO public.job_counts VALUES ('red', 'preempted', 1);
INSERT INTO public.job_counts VALUES ('red', 'completed', 1);
INSERT INTO public.job_counts VALUES ('red', 'cancelled', 1);
INSERT INTO public.job_counts VALUES ('red', 'pending', 1);
INSERT INTO public.job_counts VALUES ('red', 'failed', 1);


--
-- Data for Name: job_labels; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.job_labels VALUES ('team', 'vision', 2);


--
-- Data for Name: jobs; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.jobs VALUES (2, -1, 'job-2', 'red', 'ada', 'renamed', 900, 'pending', 'Queued', '', NULL, 1, 1000, 4, 8192, 60000, 12, NULL, NULL, NULL, NULL, 0, '[]', NULL, NULL, 0, 0, 0, 0, 0, 0, '{"team":"vision"}', 1000);
INSERT INTO public.jobs VALUES (3, -1, 'job-3', 'red', 'ada', 'train-3', 100, 'completed', 'Done', 'exit code 0', NULL, 2, 2000, 4, 8192, 60000, 13, 500, NULL, 1000, NULL, 1, '["n1"]', 0, NULL, 0, 0, 0, 900, 3600, 5, '{}', 2000);
INSERT INTO public.jobs VALUES (1, -1, 'job-1', 'red', 'ada', 'train-1', 100, 'preempted', 'Queued', 'preempted', NULL, 2, 2000, 4, 8192, 60000, 11, 100, 200, NULL, 9500, 1, '["n1"]', NULL, 15, 1, 0, 0, 900, 3600, 5, '{}', 2000);
INSERT INTO public.jobs VALUES (4, 0, 'job-4.0', 'red', 'ada', 'train-4', 100, 'cancelled', 'Cancelled', 'cancelled by ada', NULL, 1, 1000, 4, 8192, 60000, 14, NULL, NULL, 50, NULL, 0, '[]', NULL, NULL, 0, 0, 0, 0, 0, 0, '{}', 1000);
INSERT INTO public.jobs VALUES (4, 1, 'job-4.1', 'red', 'ada', 'train-4', 100, 'failed', 'Failed', 'no such image', NULL, 1, 1000, 4, 8192, 60000, 14, 100, NULL, 500, NULL, 1, '["n1"]', NULL, NULL, 0, 0, 0, 0, 0, 0, '{}', 1000);


--
-- Data for Name: journal; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.journal VALUES (1, 1, 1, 'Configured', 1, '{"kind":"Configured","settings":{"objective":"fair","default_priority":100,"queue_size_max":1000000,"tenant_jobs_max":200000,"aging_after_ms":300000,"aging_per_minute":10,"aging_max":500,"fair_share_max":400,"usage_half_life_ms":604800000,"max_wait_ms":43200000,"reservations":16,"reserve_one_node_in":8,"default_runtime_ms":3600000,"preemption":true,"preemption_min_runtime_ms":0,"preemption_cooldown_ms":600000,"stop_grace_ms":30000,"claim_ms":60000,"launch_backoff_ms":5000,"memory_ms":86400000,"remembered_max":100000,"gangs":true,"thermal":true,"thermal_limit_c":75,"cooling_ms":300000,"defragment":false,"weights":{"fragmentation":1000,"locality":1000,"health":1000,"policy":1000},"repartition":"propose","repartition_after_ms":60000,"repartition_cooldown_ms":600000,"policy_failure":"closed","utc_offset_minutes":0},"at":500}', 361466846, NULL, NULL, 4217585865);
INSERT INTO public.journal VALUES (2, 1, 2, 'TenantCreated', 1, '{"kind":"TenantCreated","id":"red","config":{"name":"red","email":"","organization":"","parent":null,"maximum":{"gpus":8,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"maximum_per_user":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"guaranteed":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"maximum_by_model":{},"guaranteed_by_model":{},"budget":{"gpu_ms":null,"cost_micro":null,"energy_mj":null},"tier":"medium","weight":100,"decay_milli_per_day":0,"may_be_preempted":true,"may_preempt":true,"preemptions_per_job_max":null,"preemption_loss_gpu_ms_per_day":null,"billed":false,"price_gpu_hour_micro":0,"active":true,"notify":{},"labels":{}},"at":1}', 2173274604, NULL, NULL, 4160201871);
INSERT INTO public.journal VALUES (3, 1, 3, 'TenantChanged', 1, '{"kind":"TenantChanged","id":"red","config":{"name":"red","email":"","organization":"","parent":null,"maximum":{"gpus":6,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"maximum_per_user":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"guaranteed":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"maximum_by_model":{},"guaranteed_by_model":{},"budget":{"gpu_ms":null,"cost_micro":null,"energy_mj":null},"tier":"medium","weight":100,"decay_milli_per_day":0,"may_be_preempted":true,"may_preempt":true,"preemptions_per_job_max":null,"preemption_loss_gpu_ms_per_day":null,"billed":false,"price_gpu_hour_micro":0,"active":true,"notify":{},"labels":{}},"at":2}', 270513791, NULL, NULL, 2352756252);
INSERT INTO public.journal VALUES (4, 1, 4, 'TenantCreated', 1, '{"kind":"TenantCreated","id":"old","config":{"name":"old","email":"","organization":"","parent":null,"maximum":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"maximum_per_user":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"guaranteed":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"maximum_by_model":{},"guaranteed_by_model":{},"budget":{"gpu_ms":null,"cost_micro":null,"energy_mj":null},"tier":"medium","weight":100,"decay_milli_per_day":0,"may_be_preempted":true,"may_preempt":true,"preemptions_per_job_max":null,"preemption_loss_gpu_ms_per_day":null,"billed":false,"price_gpu_hour_micro":0,"active":true,"notify":{},"labels":{}},"at":1}', 3018329111, NULL, NULL, 2184248496);
INSERT INTO public.journal VALUES (5, 1, 5, 'TenantDeleted', 1, '{"kind":"TenantDeleted","id":"old","at":500}', 882385783, NULL, NULL, 2342070535);
INSERT INTO public.journal VALUES (6, 1, 6, 'TokenAdded', 1, '{"kind":"TokenAdded","token":{"id":"t-1","hash":"5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8","name":"ci","role":"member","tenant":"red","made_at":4,"expires_at":9000000},"at":4}', 1546875186, NULL, NULL, 1345988245);
INSERT INTO public.journal VALUES (7, 1, 7, 'TokenRevoked', 1, '{"kind":"TokenRevoked","id":"t-1","at":500}', 4096284873, NULL, NULL, 3183133809);
INSERT INTO public.journal VALUES (8, 1, 8, 'NodeRegistered', 1, '{"kind":"NodeRegistered","node":"n1","facts":{"hostname":"n1.example","address":"10.0.0.1","cpus":64,"memory_mib":512000,"gpus":[{"uuid":"GPU-n1-0","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-1","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-2","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-3","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-4","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-5","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-6","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-7","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000}],"rack":"r1","power_feed":null,"labels":{},"taints":[],"agent_version":"0.1.0","simulated":true},"at":3}', 1175431872, NULL, NULL, 3557410707);
INSERT INTO public.journal VALUES (9, 1, 9, 'NodeRegistered', 1, '{"kind":"NodeRegistered","node":"n2","facts":{"hostname":"n2.example","address":"10.0.0.1","cpus":64,"memory_mib":512000,"gpus":[{"uuid":"GPU-n2-0","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n2-1","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n2-2","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n2-3","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000}],"rack":"r1","power_feed":null,"labels":{},"taints":[],"agent_version":"0.1.0","simulated":true},"at":3}', 2020013063, NULL, NULL, 3566113717);
INSERT INTO public.journal VALUES (10, 1, 10, 'NodeStateChanged', 1, '{"kind":"NodeStateChanged","node":"n2","status":"draining","by":"ada","why":"new fan","at":500}', 1715959837, NULL, NULL, 2661510207);
INSERT INTO public.journal VALUES (11, 1, 11, 'NodeRemoved', 1, '{"kind":"NodeRemoved","node":"n2","at":500}', 1318933934, NULL, NULL, 372201653);
INSERT INTO public.journal VALUES (12, 1, 12, 'NodeDeclared', 1, '{"kind":"NodeDeclared","node":"n3","facts":{"hostname":"n3.example","address":"10.0.0.1","cpus":64,"memory_mib":512000,"gpus":[{"uuid":"GPU-n3-0","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n3-1","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000}],"rack":"r1","power_feed":null,"labels":{},"taints":[],"agent_version":"0.1.0","simulated":true},"by":"ada","at":500}', 3134663126, NULL, NULL, 591063003);
INSERT INTO public.journal VALUES (13, 1, 13, 'NodeLabelled', 1, '{"kind":"NodeLabelled","node":"n3","labels":{"zone":"b"},"taints":["new"],"by":"ada","at":500}', 1259495770, NULL, NULL, 2945317567);
INSERT INTO public.journal VALUES (14, 1, 14, 'GpuHealthChanged', 1, '{"kind":"GpuHealthChanged","gpu":"n1/gpu-7","status":"degraded","why":"68 °C","cooling_until":9000,"temperature_c":68,"declared":{"status":"degraded","why":"noisy","by":"ada"},"reading":"warning","jobs":["job-1"],"at":500}', 205754318, NULL, NULL, 1421534417);
INSERT INTO public.journal VALUES (15, 1, 15, 'GpuPartitioned', 1, '{"kind":"GpuPartitioned","gpu":"n1/gpu-6","instances":[{"profile":"1g.18gb","start":0}],"by":"ada","why":"notebooks","at":500}', 3881056777, NULL, NULL, 2599793328);
INSERT INTO public.journal VALUES (16, 1, 16, 'WindowOpened', 1, '{"kind":"WindowOpened","window":{"name":"repair","nodes":["n3"],"from":10,"until":20,"tenant":"red","why":"a new fan","by":"ada"},"at":500}', 3477603456, NULL, NULL, 66905239);
INSERT INTO public.journal VALUES (17, 1, 17, 'WindowClosed', 1, '{"kind":"WindowClosed","name":"repair","why":"over","at":500}', 3033753894, NULL, NULL, 910074419);
INSERT INTO public.journal VALUES (18, 1, 18, 'Acted', 1, '{"kind":"Acted","by":"ada","by_kind":"token","act":"tenant.change","object":"red","refused":"unknown-tenant","times":2,"at":500}', 4109105614, NULL, NULL, 2241376003);
INSERT INTO public.journal VALUES (19, 1, 19, 'Forgotten', 1, '{"kind":"Forgotten","before":1,"trimmed_before":2}', 2455957098, NULL, NULL, 1817231681);
INSERT INTO public.journal VALUES (20, 1, 20, 'PolicyApplied', 1, '{"kind":"PolicyApplied","version":{"number":1,"scope":"cluster","bundle":{"hash":"h1","files":{"a.gsky":"x = 1"},"rules":{"pools":{},"schedules":{}},"hooks":["admit"],"mentions":[]},"by":"ada","why":"nights","at":500}}', 1207266469, NULL, NULL, 3670310);
INSERT INTO public.journal VALUES (21, 1, 21, 'PolicyAnswered', 1, '{"kind":"PolicyAnswered","bundles":["h1"],"answers":[{"job":"job-2","bucket":"b-1","admission":{"answer":"wait","why":"by day"},"priority":200,"gpu_milliwatts":500000,"costs":[["n1",-30]],"victims":[["job-1",true]],"failed":"a timeout"}],"limits":[{"tenant":"red","limit":{"gpu_milli":6000,"pools":{"h200":4000}},"blocked":"a policy failed","failed":"a timeout"}],"at":500}', 4108493335, NULL, NULL, 3587144591);
INSERT INTO public.journal VALUES (22, 1, 22, 'JobSubmitted', 1, '{"kind":"JobSubmitted","job":"job-1","spec":{"name":"train-1","tenant":"red","user":"ada","priority":100,"tasks":[{"name":"worker","count":1,"each":{"gpus":2,"gpu_models":[],"gpu_memory_mib":1000,"gpu_compute_milli":1000,"isolation":"none","cpus":4,"memory_mib":8192}}],"topology":"any","time_limit_ms":60000,"restart":{"max_restarts":0,"max_requeues":5},"on_node_lost":"wait","checkpoint":null,"after":[],"start_after":null,"pool":null,"node_labels":{},"run":{"image":null,"script":null,"command":["true"],"args":[],"env":{},"directory":null},"labels":{},"annotations":{}},"array":null,"held_by":null,"key":null,"open_dependencies":[],"at":11}', 718445361, 1, -1, 1905866264);
INSERT INTO public.journal VALUES (23, 1, 23, 'JobSubmitted', 1, '{"kind":"JobSubmitted","job":"job-2","spec":{"name":"eval","tenant":"red","user":"ada","priority":100,"tasks":[{"name":"worker","count":1,"each":{"gpus":1,"gpu_models":[],"gpu_memory_mib":1000,"gpu_compute_milli":1000,"isolation":"none","cpus":4,"memory_mib":8192}}],"topology":"any","time_limit_ms":60000,"restart":{"max_restarts":0,"max_requeues":5},"on_node_lost":"wait","checkpoint":null,"after":[{"job":"job-1","when":"succeeded"}],"start_after":5000,"pool":null,"node_labels":{},"run":{"image":null,"script":null,"command":["true"],"args":[],"env":{},"directory":null},"labels":{"team":"vision"},"annotations":{"muster.sim/runtime":"20s"}},"array":null,"held_by":"ada","key":{"key":"k-1","body_hash":"abc"},"open_dependencies":[{"job":"job-1","when":"succeeded"}],"at":12}', 2265927621, 2, -1, 822425070);
INSERT INTO public.journal VALUES (24, 1, 24, 'JobHeld', 1, '{"kind":"JobHeld","job":"job-2","by":"ada","why":"not yet","at":500}', 2174262527, 2, -1, 3431241355);
INSERT INTO public.journal VALUES (25, 1, 25, 'JobReleased', 1, '{"kind":"JobReleased","job":"job-2","by":"ada","at":500}', 3810155599, 2, -1, 1632665681);
INSERT INTO public.journal VALUES (26, 1, 26, 'JobChanged', 1, '{"kind":"JobChanged","job":"job-2","change":{"name":"renamed","priority":900,"labels":null},"at":500}', 1872369550, 2, -1, 2653485677);
INSERT INTO public.journal VALUES (27, 1, 27, 'JobWoken', 1, '{"kind":"JobWoken","job":"job-2","at":500}', 2775490212, 2, -1, 55384920);
INSERT INTO public.journal VALUES (28, 1, 28, 'JobSubmitted', 1, '{"kind":"JobSubmitted","job":"job-3","spec":{"name":"train-3","tenant":"red","user":"ada","priority":100,"tasks":[{"name":"worker","count":1,"each":{"gpus":2,"gpu_models":[],"gpu_memory_mib":1000,"gpu_compute_milli":1000,"isolation":"none","cpus":4,"memory_mib":8192}}],"topology":"any","time_limit_ms":60000,"restart":{"max_restarts":0,"max_requeues":5},"on_node_lost":"wait","checkpoint":null,"after":[],"start_after":null,"pool":null,"node_labels":{},"run":{"image":null,"script":null,"command":["true"],"args":[],"env":{},"directory":null},"labels":{},"annotations":{}},"array":null,"held_by":null,"key":null,"open_dependencies":[],"at":13}', 1576450909, 3, -1, 3574477232);
INSERT INTO public.journal VALUES (29, 1, 29, 'JobSubmitted', 1, '{"kind":"JobSubmitted","job":"job-4","spec":{"name":"train-4","tenant":"red","user":"ada","priority":100,"tasks":[{"name":"worker","count":1,"each":{"gpus":1,"gpu_models":[],"gpu_memory_mib":1000,"gpu_compute_milli":1000,"isolation":"none","cpus":4,"memory_mib":8192}}],"topology":"any","time_limit_ms":60000,"restart":{"max_restarts":0,"max_requeues":5},"on_node_lost":"wait","checkpoint":null,"after":[],"start_after":null,"pool":null,"node_labels":{},"run":{"image":null,"script":null,"command":["true"],"args":[],"env":{},"directory":null},"labels":{},"annotations":{}},"array":{"indexes":[0,1],"running_max":null},"held_by":null,"key":null,"open_dependencies":[],"at":14}', 3238616872, 4, -1, 4179136834);
INSERT INTO public.journal VALUES (30, 1, 30, 'WaitNoted', 1, '{"kind":"WaitNoted","bucket":"b-1","reasons":[{"reason":"Reservation","job":"job-1"}],"at":500}', 759812648, NULL, NULL, 1651186461);
INSERT INTO public.journal VALUES (31, 1, 31, 'StartForecast', 1, '{"kind":"StartForecast","job":"job-3","range":{"from":700,"to":900},"at":500}', 3710268262, 3, -1, 1700279880);
INSERT INTO public.journal VALUES (32, 1, 32, 'JobPlaced', 1, '{"kind":"JobPlaced","job":"job-1","attempt":1,"epoch":1,"tasks":[{"rank":0,"group":0,"node":"n1","gpus":[0,1]}],"effective_priority":null,"expected_ms":null,"revocable":false,"at":100}', 1023232661, 1, -1, 2617777673);
INSERT INTO public.journal VALUES (33, 1, 33, 'AttemptStarted', 1, '{"kind":"AttemptStarted","job":"job-1","attempt":1,"node":"n1","whole":true,"at":200}', 2959053946, 1, -1, 3186870638);
INSERT INTO public.journal VALUES (34, 1, 34, 'ClaimMade', 1, '{"kind":"ClaimMade","job":"job-3","tasks":[{"rank":0,"group":0,"node":"n1","gpus":[0,1]}],"victims":["job-1"],"at":500,"until":60500}', 3148612655, 3, -1, 600743679);
INSERT INTO public.journal VALUES (35, 1, 35, 'AttemptStopping', 1, '{"kind":"AttemptStopping","job":"job-1","attempt":1,"cause":{"cause":"preempted","by":"job-3"},"grace_ms":30000,"at":500}', 1287592048, 1, -1, 874517350);
INSERT INTO public.journal VALUES (36, 1, 36, 'CheckpointSaved', 1, '{"kind":"CheckpointSaved","job":"job-1","attempt":1,"grace_ms":2010,"at":510}', 1596542522, 1, -1, 748519671);
INSERT INTO public.journal VALUES (37, 1, 37, 'AttemptEnded', 1, '{"kind":"AttemptEnded","job":"job-1","attempt":1,"exit":{"exit":"signal","signal":15},"next":{"next":"queued","cause":"preempted","wakes_at":5000},"charge":{"gpu_ms":900,"cpu_ms":3600,"memory_gib_ms":7200,"cost_micro":5,"energy_mj":7},"receipt":{"by":"job-3","stop_ordered_at":500,"saved_at":510,"ran_ms":300,"lost_gpu_ms":40},"held":{"cpus":4,"memory_mib":8192,"planned_ms":60000,"cost_per_hour_micro":20},"charged_until":900,"at":1000}', 207377934, 1, -1, 705008658);
INSERT INTO public.journal VALUES (38, 1, 38, 'ClaimEnded', 1, '{"kind":"ClaimEnded","job":"job-3","why":"its job has started","at":500}', 160854891, 3, -1, 2144349749);
INSERT INTO public.journal VALUES (39, 1, 39, 'JobPlaced', 1, '{"kind":"JobPlaced","job":"job-3","attempt":1,"epoch":1,"tasks":[{"rank":0,"group":0,"node":"n1","gpus":[0,1]}],"effective_priority":120,"expected_ms":60000,"revocable":true,"score":{"terms":[{"name":"fragmentation","milli":-5}],"compared":2},"held":{"gpu_milli":2000,"gpu_memory_mib":2000,"cpus":4,"memory_mib":8192,"jobs":1,"milliwatts":1400000},"at":500}', 460173248, 3, -1, 2691597277);
INSERT INTO public.journal VALUES (40, 1, 40, 'PlanAdopted', 1, '{"kind":"PlanAdopted","snapshot":26,"now":500,"placed":1,"claimed":0,"rejected":2}', 950504251, NULL, NULL, 1287174);
INSERT INTO public.journal VALUES (41, 1, 41, 'NodePartEnded', 1, '{"kind":"NodePartEnded","job":"job-3","attempt":1,"node":"n1","exit":{"exit":"code","code":0},"stopped":true,"ended_at":800,"at":500}', 2884093206, 3, -1, 667292165);
INSERT INTO public.journal VALUES (42, 1, 42, 'AttemptEnded', 1, '{"kind":"AttemptEnded","job":"job-3","attempt":1,"exit":{"exit":"code","code":0},"next":{"next":"ended","outcome":"done","why":"exit code 0"},"charge":{"gpu_ms":900,"cpu_ms":3600,"memory_gib_ms":7200,"cost_micro":5,"energy_mj":0},"at":1000}', 1384950176, 3, -1, 3762473506);
INSERT INTO public.journal VALUES (43, 1, 43, 'RetryAnswered', 1, '{"kind":"RetryAnswered","bundles":["h1"],"answer":{"job":"job-1","attempt":1,"retry":{"answer":"after","wait_ms":9000},"failed":"late"},"wakes_at":9500,"at":500}', 2600739921, 1, -1, 2468093708);
INSERT INTO public.journal VALUES (44, 1, 44, 'JobEnded', 1, '{"kind":"JobEnded","job":"job-4.0","outcome":"cancelled","why":"cancelled by ada","at":50}', 205156728, 4, 0, 2517541223);
INSERT INTO public.journal VALUES (45, 1, 45, 'JobPlaced', 1, '{"kind":"JobPlaced","job":"job-4.1","attempt":1,"epoch":1,"tasks":[{"rank":0,"group":0,"node":"n1","gpus":[2]}],"effective_priority":null,"expected_ms":null,"revocable":false,"at":100}', 2749929897, 4, 1, 558187415);
INSERT INTO public.journal VALUES (46, 1, 46, 'AttemptEnded', 1, '{"kind":"AttemptEnded","job":"job-4.1","attempt":1,"exit":{"exit":"not-started","why":"no such image"},"next":{"next":"ended","outcome":"failed","why":"no such image"},"charge":{"gpu_ms":0,"cpu_ms":0,"memory_gib_ms":0,"cost_micro":0,"energy_mj":0},"at":500}', 493085120, 4, 1, 1695256610);


--
-- Data for Name: leader; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.leader VALUES (1, 1, 8247521466588728610, 'test', 0);


--
-- Data for Name: leases; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.leases VALUES (1, -1, 1, 'n1', 0, 'job-1', 32, 0, 'red', 1000, 100, 1000, '', 1000, NULL);
INSERT INTO public.leases VALUES (1, -1, 1, 'n1', 1, 'job-1', 32, 0, 'red', 1000, 100, 1000, '', 1000, NULL);
INSERT INTO public.leases VALUES (3, -1, 1, 'n1', 0, 'job-3', 39, 0, 'red', 1000, 500, 1000, '', 1000, NULL);
INSERT INTO public.leases VALUES (3, -1, 1, 'n1', 1, 'job-3', 39, 0, 'red', 1000, 500, 1000, '', 1000, NULL);
INSERT INTO public.leases VALUES (4, 1, 1, 'n1', 2, 'job-4.1', 45, 0, 'red', 1000, 100, 500, '', 1000, NULL);


--
-- Data for Name: nodes; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.nodes VALUES ('n1', 'n1.example', '10.0.0.1', 'Ready', 'muster', 'registered', 3, 64, 512000, 8, 'r1', NULL, '0.1.0', true, '{"hostname":"n1.example","address":"10.0.0.1","cpus":64,"memory_mib":512000,"gpus":[{"uuid":"GPU-n1-0","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-1","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-2","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-3","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-4","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-5","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-6","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-7","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000}],"rack":"r1","power_feed":null,"labels":{},"taints":[],"agent_version":"0.1.0","simulated":true}', 3, 3, NULL, false, NULL, NULL);
INSERT INTO public.nodes VALUES ('n2', 'n2.example', '10.0.0.1', 'Draining', 'ada', 'new fan', 500, 64, 512000, 4, 'r1', NULL, '0.1.0', true, '{"hostname":"n2.example","address":"10.0.0.1","cpus":64,"memory_mib":512000,"gpus":[{"uuid":"GPU-n2-0","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n2-1","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n2-2","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n2-3","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000}],"rack":"r1","power_feed":null,"labels":{},"taints":[],"agent_version":"0.1.0","simulated":true}', 3, 500, 500, false, NULL, NULL);
INSERT INTO public.nodes VALUES ('n3', 'n3.example', '10.0.0.1', 'Ready', 'muster', 'registered', 500, 64, 512000, 2, 'r1', NULL, '0.1.0', true, '{"hostname":"n3.example","address":"10.0.0.1","cpus":64,"memory_mib":512000,"gpus":[{"uuid":"GPU-n3-0","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n3-1","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000}],"rack":"r1","power_feed":null,"labels":{},"taints":[],"agent_version":"0.1.0","simulated":true}', 500, 500, NULL, true, '{"zone":"b"}', '["new"]');


--
-- Data for Name: policies; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.policies VALUES (1, 'cluster', 'h1', '{"a.gsky":"x = 1"}', '["admit"]', 'ada', 'nights', 500);


--
-- Data for Name: refinery_schema_history; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.refinery_schema_history VALUES (1, 'tables', '2026-11-18T19:41:23.431267461Z', '16536915001630120235');
INSERT INTO public.refinery_schema_history VALUES (2, 'cheaper_submissions', '2026-11-18T19:41:23.575478802Z', '14875283809853351041');
INSERT INTO public.refinery_schema_history VALUES (3, 'waits', '2026-11-18T19:41:23.583979863Z', '10459715901684836550');
INSERT INTO public.refinery_schema_history VALUES (4, 'windows', '2026-11-18T19:41:23.587554407Z', '782146161394387671');
INSERT INTO public.refinery_schema_history VALUES (5, 'energy', '2026-11-18T19:41:23.59571384Z', '1493090918106648410');
INSERT INTO public.refinery_schema_history VALUES (6, 'shares', '2026-11-18T19:41:23.596555822Z', '8026259255744317103');
INSERT INTO public.refinery_schema_history VALUES (7, 'policies', '2026-11-18T19:41:23.624044383Z', '11504829345893232860');
INSERT INTO public.refinery_schema_history VALUES (8, 'bounds', '2026-11-18T19:41:23.631767682Z', '723874170560642745');
INSERT INTO public.refinery_schema_history VALUES (9, 'integrity', '2026-11-18T19:41:23.639657362Z', '3679714063932246576');
INSERT INTO public.refinery_schema_history VALUES (10, 'charged_until', '2026-11-18T19:41:23.645503567Z', '9445738602053223249');
INSERT INTO public.refinery_schema_history VALUES (11, 'held_and_declared', '2026-11-18T19:41:23.651361113Z', '17127228668760907395');
INSERT INTO public.refinery_schema_history VALUES (12, 'held_by_attempts', '2026-11-18T19:41:23.653156505Z', '5936109908525179446');
INSERT INTO public.refinery_schema_history VALUES (13, 'kind_of_actor', '2026-11-18T19:41:23.65959224Z', '17269822119071473708');
INSERT INTO public.refinery_schema_history VALUES (14, 'claims', '2026-11-18T19:41:23.66023495Z', '3272286771029673338');


--
-- Data for Name: savepoint_chunks; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.savepoint_chunks VALUES (44, 0, 3416206783, '\x7b224672616d65223a7b22736571223a34342c22636c6f636b223a313030302c226e6578745f6a6f62223a352c2273657474696e6773223a7b226f626a656374697665223a2266616972222c2264656661756c745f7072696f72697479223a3130302c2271756575655f73697a655f6d6178223a313030303030302c2274656e616e745f6a6f62735f6d6178223a3230303030302c226167696e675f61667465725f6d73223a3330303030302c226167696e675f7065725f6d696e757465223a31302c226167696e675f6d6178223a3530302c22666169725f73686172655f6d6178223a3430302c2275736167655f68616c665f6c6966655f6d73223a3630343830303030302c226d61785f776169745f6d73223a34333230303030302c227265736572766174696f6e73223a31362c22726573657276655f6f6e655f6e6f64655f696e223a382c2264656661756c745f72756e74696d655f6d73223a333630303030302c22707265656d7074696f6e223a747275652c22707265656d7074696f6e5f6d696e5f72756e74696d655f6d73223a302c22707265656d7074696f6e5f636f6f6c646f776e5f6d73223a3630303030302c2273746f705f67726163655f6d73223a33303030302c22636c61696d5f6d73223a36303030302c226c61756e63685f6261636b6f66665f6d73223a353030302c226d656d6f72795f6d73223a38363430303030302c2272656d656d62657265645f6d6178223a3130303030302c2267616e6773223a747275652c22746865726d616c223a747275652c22746865726d616c5f6c696d69745f63223a37352c22636f6f6c696e675f6d73223a3330303030302c226465667261676d656e74223a66616c73652c2277656967687473223a7b22667261676d656e746174696f6e223a313030302c226c6f63616c697479223a313030302c226865616c7468223a313030302c22706f6c696379223a313030307d2c227265706172746974696f6e223a2270726f706f7365222c227265706172746974696f6e5f61667465725f6d73223a36303030302c227265706172746974696f6e5f636f6f6c646f776e5f6d73223a3630303030302c22706f6c6963795f6661696c757265223a22636c6f736564222c227574635f6f66667365745f6d696e75746573223a307d2c2274656e616e7473223a5b7b226964223a22726564222c22636f6e666967223a7b226e616d65223a22726564222c22656d61696c223a22222c226f7267616e697a6174696f6e223a22222c22706172656e74223a6e756c6c2c226d6178696d756d223a7b2267707573223a362c226770755f6d656d6f72795f6d6962223a6e756c6c2c2263707573223a6e756c6c2c226d656d6f72795f6d6962223a6e756c6c2c226a6f6273223a6e756c6c7d2c226d6178696d756d5f7065725f75736572223a7b2267707573223a6e756c6c2c226770755f6d656d6f72795f6d6962223a6e756c6c2c2263707573223a6e756c6c2c226d656d6f72795f6d6962223a6e756c6c2c226a6f6273223a6e756c6c7d2c2267756172616e74656564223a7b2267707573223a6e756c6c2c226770755f6d656d6f72795f6d6962223a6e756c6c2c2263707573223a6e756c6c2c226d656d6f72795f6d6962223a6e756c6c2c226a6f6273223a6e756c6c7d2c226d6178696d756d5f62795f6d6f64656c223a7b7d2c2267756172616e746565645f62795f6d6f64656c223a7b7d2c22627564676574223a7b226770755f6d73223a6e756c6c2c22636f73745f6d6963726f223a6e756c6c2c22656e657267795f6d6a223a6e756c6c7d2c2274696572223a226d656469756d222c22776569676874223a3130302c2264656361795f6d696c6c695f7065725f646179223a302c226d61795f62655f707265656d70746564223a747275652c226d61795f707265656d7074223a747275652c22707265656d7074696f6e735f7065725f6a6f625f6d6178223a6e756c6c2c22707265656d7074696f6e5f6c6f73735f6770755f6d735f7065725f646179223a6e756c6c2c2262696c6c6564223a66616c73652c2270726963655f6770755f686f75725f6d6963726f223a302c22616374697665223a747275652c226e6f74696679223a7b7d2c226c6162656c73223a7b7d7d2c2268656c64223a7b226770755f6d696c6c69223a302c226770755f6d656d6f72795f6d6962223a302c2263707573223a302c226d656d6f72795f6d6962223a302c226a6f6273223a302c226d696c6c697761747473223a307d2c226c6976655f6a6f6273223a332c22646563617965645f7573616765223a7b2266696e65223a3132333035393032332c226174223a313030307d2c22707265656d7074696f6e5f6c6f7373223a7b226770755f6d73223a302c226174223a307d2c226d656d62657273223a7b22616461223a7b2268656c64223a7b226770755f6d696c6c69223a302c226770755f6d656d6f72795f6d6962223a302c2263707573223a302c226d656d6f72795f6d6962223a302c226a6f6273223a302c226d696c6c697761747473223a307d2c226c6976655f6a6f6273223a332c22646563617965645f7573616765223a7b2266696e65223a3132333035393032332c226174223a313030307d2c2272756e74696d6573223a7b22726563656e74223a7b226e6577657374223a5b302c302c302c302c302c302c302c305d2c22636f756e74223a307d2c226c696d69745f7573655f6d696c6c69223a7b226e6577657374223a5b302c302c302c302c302c302c302c305d2c22636f756e74223a307d2c22636c6173736573223a7b2231303030223a7b226669727374223a302c227265636f726473223a5b7b2272616e5f6d73223a302c2273696e6365223a6e756c6c2c22656e646564223a66616c73657d2c7b2272616e5f6d73223a302c2273696e6365223a6e756c6c2c22656e646564223a66616c73657d2c7b2272616e5f6d73223a302c2273696e6365223a6e756c6c2c22656e646564223a66616c73657d5d2c22656e646564223a5b5d7d2c2232303030223a7b226669727374223a302c227265636f726473223a5b7b2272616e5f6d73223a3331302c2273696e6365223a6e756c6c2c22656e646564223a66616c73657d2c7b2272616e5f6d73223a302c2273696e6365223a6e756c6c2c22656e646564223a66616c73657d5d2c22656e646564223a5b5d7d7d7d7d7d2c2272756e74696d6573223a7b22616c6c223a7b226e6577657374223a5b302c302c302c302c302c302c302c305d2c22636f756e74223a307d2c2262795f74797065223a7b7d7d7d5d2c226e6f646573223a5b7b226964223a226e31222c226661637473223a7b22686f73746e616d65223a226e312e6578616d706c65222c2261646472657373223a2231302e302e302e31222c2263707573223a36342c226d656d6f72795f6d6962223a3531323030302c2267707573223a5b7b2275756964223a224750552d6e312d30222c226d6f64656c223a224e56494449412048323030222c226d656d6f72795f6d6962223a3134333030302c226e756d615f6e6f6465223a6e756c6c2c226e766c696e6b223a5b5d2c22706f7765725f6c696d69745f6d696c6c697761747473223a3730303030307d2c7b2275756964223a224750552d6e312d31222c226d6f64656c223a224e56494449412048323030222c226d656d6f72795f6d6962223a3134333030302c226e756d615f6e6f6465223a6e756c6c2c226e766c696e6b223a5b5d2c22706f7765725f6c696d69745f6d696c6c697761747473223a3730303030307d2c7b2275756964223a224750552d6e312d32222c226d6f64656c223a224e56494449412048323030222c226d656d6f72795f6d6962223a3134333030302c226e756d615f6e6f6465223a6e756c6c2c226e766c696e6b223a5b5d2c22706f7765725f6c696d69745f6d696c6c697761747473223a3730303030307d2c7b2275756964223a224750552d6e312d33222c226d6f64656c223a224e56494449412048323030222c226d656d6f72795f6d6962223a3134333030302c226e756d615f6e6f6465223a6e756c6c2c226e766c696e6b223a5b5d2c22706f7765725f6c696d69745f6d696c6c697761747473223a3730303030307d2c7b2275756964223a224750552d6e312d34222c226d6f64656c223a224e56494449412048323030222c226d656d6f72795f6d6962223a3134333030302c226e756d615f6e6f6465223a6e756c6c2c226e766c696e6b223a5b5d2c22706f7765725f6c696d69745f6d696c6c697761747473223a3730303030307d2c7b2275756964223a224750552d6e312d35222c226d6f64656c223a224e56494449412048323030222c226d656d6f72795f6d6962223a3134333030302c226e756d615f6e6f6465223a6e756c6c2c226e766c696e6b223a5b5d2c22706f7765725f6c696d69745f6d696c6c697761747473223a3730303030307d2c7b2275756964223a224750552d6e312d36222c226d6f64656c223a224e56494449412048323030222c226d656d6f72795f6d6962223a3134333030302c226e756d615f6e6f6465223a6e756c6c2c226e766c696e6b223a5b5d2c22706f7765725f6c696d69745f6d696c6c697761747473223a3730303030307d2c7b2275756964223a224750552d6e312d37222c226d6f64656c223a224e56494449412048323030222c226d656d6f72795f6d6962223a3134333030302c226e756d615f6e6f6465223a6e756c6c2c226e766c696e6b223a5b5d2c22706f7765725f6c696d69745f6d696c6c697761747473223a3730303030307d5d2c227261636b223a227231222c22706f7765725f66656564223a6e756c6c2c226c6162656c73223a7b7d2c227461696e7473223a5b5d2c226167656e745f76657273696f6e223a22302e312e30222c2273696d756c61746564223a747275657d2c227374617465223a7b22737461747573223a227265616479222c226279223a226d7573746572222c22776879223a2272656769737465726564222c2273696e6365223a337d2c226770755f6865616c7468223a5b7b22737461747573223a226865616c746879222c22776879223a22222c2273696e6365223a332c22636f6f6c696e675f756e74696c223a6e756c6c7d2c7b22737461747573223a226865616c746879222c22776879223a22222c2273696e6365223a332c22636f6f6c696e675f756e74696c223a6e756c6c7d2c7b22737461747573223a226865616c746879222c22776879223a22222c2273696e6365223a332c22636f6f6c696e675f756e74696c223a6e756c6c7d2c7b22737461747573223a226865616c746879222c22776879223a22222c2273696e6365223a332c22636f6f6c696e675f756e74696c223a6e756c6c7d2c7b22737461747573223a226865616c746879222c22776879223a22222c2273696e6365223a332c22636f6f6c696e675f756e74696c223a6e756c6c7d2c7b22737461747573223a226865616c746879222c22776879223a22222c2273696e6365223a332c22636f6f6c696e675f756e74696c223a6e756c6c7d2c7b22737461747573223a226865616c746879222c22776879223a22222c2273696e6365223a332c22636f6f6c696e675f756e74696c223a6e756c6c7d2c7b22737461747573223a226465677261646564222c22776879223a22363820c2b043222c2273696e6365223a3530302c22636f6f6c696e675f756e74696c223a393030302c2274656d70657261747572655f63223a36382c226465636c61726564223a7b22737461747573223a226465677261646564222c22776879223a226e6f697379222c226279223a22616461227d2c2272656164696e67223a227761726e696e67227d5d2c22706172746974696f6e73223a7b2236223a7b22696e7374616e636573223a5b7b2270726f66696c65223a2231672e31386762222c227374617274223a307d5d2c2273696e6365223a3530307d7d2c22726567697374657265645f6174223a332c22637075735f68656c64223a302c226d656d6f72795f6d69625f68656c64223a302c226a6f6273223a5b5d2c22706c616365645f6174223a3530307d2c7b226964223a226e33222c226661637473223a7b22686f73746e616d65223a226e332e6578616d706c65222c2261646472657373223a2231302e302e302e31222c2263707573223a36342c226d656d6f72795f6d6962223a3531323030302c2267707573223a5b7b2275756964223a224750552d6e332d30222c226d6f64656c223a224e56494449412048323030222c226d656d6f72795f6d6962223a3134333030302c226e756d615f6e6f6465223a6e756c6c2c226e766c696e6b223a5b5d2c22706f7765725f6c696d69745f6d696c6c697761747473223a3730303030307d2c7b2275756964223a224750552d6e332d31222c226d6f64656c223a224e56494449412048323030222c226d656d6f72795f6d6962223a3134333030302c226e756d615f6e6f6465223a6e756c6c2c226e766c696e6b223a5b5d2c22706f7765725f6c696d69745f6d696c6c697761747473223a3730303030307d5d2c227261636b223a227231222c22706f7765725f66656564223a6e756c6c2c226c6162656c73223a7b7d2c227461696e7473223a5b5d2c226167656e745f76657273696f6e223a22302e312e30222c2273696d756c61746564223a747275657d2c227374617465223a7b22737461747573223a227265616479222c226279223a226d7573746572222c22776879223a2272656769737465726564222c2273696e6365223a3530307d2c226770755f6865616c7468223a5b7b22737461747573223a226865616c746879222c22776879223a22222c2273696e6365223a3530302c22636f6f6c696e675f756e74696c223a6e756c6c7d2c7b22737461747573223a226865616c746879222c22776879223a22222c2273696e6365223a3530302c22636f6f6c696e675f756e74696c223a6e756c6c7d5d2c22726567697374657265645f6174223a3530302c226465636c61726564223a747275652c226f70657261746f72223a7b226c6162656c73223a7b227a6f6e65223a2262227d2c227461696e7473223a5b226e6577225d7d2c22637075735f68656c64223a302c226d656d6f72795f6d69625f68656c64223a302c226a6f6273223a5b5d2c22706c616365645f6174223a307d5d2c22617272617973223a5b5b342c7b2272756e6e696e675f6d6178223a6e756c6c2c226c697665223a312c22616374697665223a302c22616c6c5f646f6e65223a66616c73657d5d5d2c22666f72676f7474656e5f6265666f7265223a312c227472696d6d65645f6265666f7265223a322c22636c61696d73223a5b5d2c2277696e646f7773223a5b5d2c22746f6b656e73223a5b5d2c226c6564676572223a7b22726564223a7b2275736564223a7b226770755f6d73223a313830302c226370755f6d73223a373230302c226d656d6f72795f6769625f6d73223a31343430302c22636f73745f6d6963726f223a31302c22656e657267795f6d6a223a377d2c227375626d6974746564223a352c22646f6e65223a312c226661696c6564223a302c2263616e63656c6c6564223a317d7d2c2263616c6962726174696f6e223a7b226e6561725f6d696c6c69223a3434392c226661725f6d696c6c69223a313233372c22696e73696465223a5b302c302c302c302c302c302c302c305d2c22636f756e74223a317d2c22726563656e745f72756e74696d6573223a7b226e6577657374223a5b302c302c302c302c302c302c302c305d2c22636f756e74223a307d2c22776f726b6c6f61645f6d6978223a7b22636f756e7473223a5b5b7b2267707573223a312c226770755f6d6f64656c73223a5b5d2c226770755f6d656d6f72795f6d6962223a313030302c226770755f636f6d707574655f6d696c6c69223a313030302c2269736f6c6174696f6e223a226e6f6e65222c2263707573223a342c226d656d6f72795f6d6962223a383139327d2c335d2c5b7b2267707573223a322c226770755f6d6f64656c73223a5b5d2c226770755f6d656d6f72795f6d6962223a313030302c226770755f636f6d707574655f6d696c6c69223a313030302c2269736f6c6174696f6e223a226e6f6e65222c2263707573223a342c226d656d6f72795f6d6962223a383139327d2c325d5d2c22636f756e746564223a352c226e6578745f736e617073686f74223a31302c22736e617073686f74223a5b5b7b2267707573223a312c226770755f6d6f64656c73223a5b5d2c226770755f6d656d6f72795f6d6962223a313030302c226770755f636f6d707574655f6d696c6c69223a313030302c2269736f6c6174696f6e223a226e6f6e65222c2263707573223a342c226d656d6f72795f6d6962223a383139327d2c335d2c5b7b2267707573223a322c226770755f6d6f64656c73223a5b5d2c226770755f6d656d6f72795f6d6962223a313030302c226770755f636f6d707574655f6d696c6c69223a313030302c2269736f6c6174696f6e223a226e6f6e65222c2263707573223a342c226d656d6f72795f6d6962223a383139327d2c325d5d7d2c22706f6c6963696573223a5b7b226e756d626572223a312c2273636f7065223a22636c7573746572222c2262756e646c65223a7b2268617368223a226831222c2266696c6573223a7b22612e67736b79223a2278203d2031227d2c2272756c6573223a7b22706f6f6c73223a7b7d2c227363686564756c6573223a7b7d7d2c22686f6f6b73223a5b2261646d6974225d2c226d656e74696f6e73223a5b5d7d2c226279223a22616461222c22776879223a226e6967687473222c226174223a3530307d5d2c226c696d697473223a5b7b2274656e616e74223a22726564222c226c696d6974223a7b226770755f6d696c6c69223a363030302c22706f6f6c73223a7b2268323030223a343030307d7d2c22626c6f636b6564223a226120706f6c696379206661696c6564222c226661696c6564223a22612074696d656f7574227d5d7d7d0a7b225370656373223a5b7b226e616d65223a22747261696e2d31222c2274656e616e74223a22726564222c2275736572223a22616461222c227072696f72697479223a3130302c227461736b73223a5b7b226e616d65223a22776f726b6572222c22636f756e74223a312c2265616368223a7b2267707573223a322c226770755f6d6f64656c73223a5b5d2c226770755f6d656d6f72795f6d6962223a313030302c226770755f636f6d707574655f6d696c6c69223a313030302c2269736f6c6174696f6e223a226e6f6e65222c2263707573223a342c226d656d6f72795f6d6962223a383139327d7d5d2c22746f706f6c6f6779223a22616e79222c2274696d655f6c696d69745f6d73223a36303030302c2272657374617274223a7b226d61785f7265737461727473223a302c226d61785f7265717565756573223a357d2c226f6e5f6e6f64655f6c6f7374223a2277616974222c22636865636b706f696e74223a6e756c6c2c226166746572223a5b5d2c2273746172745f6166746572223a6e756c6c2c22706f6f6c223a6e756c6c2c226e6f64655f6c6162656c73223a7b7d2c2272756e223a7b22696d616765223a6e756c6c2c22736372697074223a6e756c6c2c22636f6d6d616e64223a5b2274727565225d2c2261726773223a5b5d2c22656e76223a7b7d2c226469726563746f7279223a6e756c6c7d2c226c6162656c73223a7b7d2c22616e6e6f746174696f6e73223a7b7d7d2c7b226e616d65223a2272656e616d6564222c2274656e616e74223a22726564222c2275736572223a22616461222c227072696f72697479223a3930302c227461736b73223a5b7b226e616d65223a22776f726b6572222c22636f756e74223a312c2265616368223a7b2267707573223a312c226770755f6d6f64656c73223a5b5d2c226770755f6d656d6f72795f6d6962223a313030302c226770755f636f6d707574655f6d696c6c69223a313030302c2269736f6c6174696f6e223a226e6f6e65222c2263707573223a342c226d656d6f72795f6d6962223a383139327d7d5d2c22746f706f6c6f6779223a22616e79222c2274696d655f6c696d69745f6d73223a36303030302c2272657374617274223a7b226d61785f7265737461727473223a302c226d61785f7265717565756573223a357d2c226f6e5f6e6f64655f6c6f7374223a2277616974222c22636865636b706f696e74223a6e756c6c2c226166746572223a5b7b226a6f62223a226a6f622d31222c227768656e223a22737563636565646564227d5d2c2273746172745f6166746572223a353030302c22706f6f6c223a6e756c6c2c226e6f64655f6c6162656c73223a7b7d2c2272756e223a7b22696d616765223a6e756c6c2c22736372697074223a6e756c6c2c22636f6d6d616e64223a5b2274727565225d2c2261726773223a5b5d2c22656e76223a7b7d2c226469726563746f7279223a6e756c6c7d2c226c6162656c73223a7b227465616d223a22766973696f6e227d2c22616e6e6f746174696f6e73223a7b226d75737465722e73696d2f72756e74696d65223a22323073227d7d2c7b226e616d65223a22747261696e2d34222c2274656e616e74223a22726564222c2275736572223a22616461222c227072696f72697479223a3130302c227461736b73223a5b7b226e616d65223a22776f726b6572222c22636f756e74223a312c2265616368223a7b2267707573223a312c226770755f6d6f64656c73223a5b5d2c226770755f6d656d6f72795f6d6962223a313030302c226770755f636f6d707574655f6d696c6c69223a313030302c2269736f6c6174696f6e223a226e6f6e65222c2263707573223a342c226d656d6f72795f6d6962223a383139327d7d5d2c22746f706f6c6f6779223a22616e79222c2274696d655f6c696d69745f6d73223a36303030302c2272657374617274223a7b226d61785f7265737461727473223a302c226d61785f7265717565756573223a357d2c226f6e5f6e6f64655f6c6f7374223a2277616974222c22636865636b706f696e74223a6e756c6c2c226166746572223a5b5d2c2273746172745f6166746572223a6e756c6c2c22706f6f6c223a6e756c6c2c226e6f64655f6c6162656c73223a7b7d2c2272756e223a7b22696d616765223a6e756c6c2c22736372697074223a6e756c6c2c22636f6d6d616e64223a5b2274727565225d2c2261726773223a5b5d2c22656e76223a7b7d2c226469726563746f7279223a6e756c6c7d2c226c6162656c73223a7b7d2c22616e6e6f746174696f6e73223a7b7d7d5d7d0a7b224a6f6273223a5b7b2273706563223a302c226964223a226a6f622d31222c227375626d69747465645f6174223a31312c227068617365223a7b227068617365223a22717565756564222c22707265656d70746564223a747275652c2272657475726e696e67223a66616c73652c2273696e6365223a313030307d2c22617474656d707473223a312c227265737461727473223a302c22707265656d7074696f6e73223a312c227265717565756573223a302c2272616e5f6d73223a3331302c22636c6173735f6e756d626572223a302c2277616b65735f6174223a393530307d2c7b2273706563223a312c226964223a226a6f622d32222c227375626d69747465645f6174223a31322c227068617365223a7b227068617365223a22717565756564222c22707265656d70746564223a66616c73652c2272657475726e696e67223a66616c73652c2273696e6365223a3530307d2c22617474656d707473223a302c227265737461727473223a302c22707265656d7074696f6e73223a302c227265717565756573223a302c2272616e5f6d73223a302c22636c6173735f6e756d626572223a302c226f70656e5f646570656e64656e63696573223a5b7b226a6f62223a226a6f622d31222c227768656e223a22737563636565646564227d5d7d2c7b2273706563223a322c226964223a226a6f622d342e31222c227375626d69747465645f6174223a31342c227068617365223a7b227068617365223a22717565756564222c22707265656d70746564223a66616c73652c2272657475726e696e67223a66616c73652c2273696e6365223a31347d2c22617474656d707473223a302c227265737461727473223a302c22707265656d7074696f6e73223a302c227265717565756573223a302c2272616e5f6d73223a302c22636c6173735f6e756d626572223a327d5d7d0a7b22456e646564223a5b5b226a6f622d33222c7b226f7574636f6d65223a22646f6e65222c226174223a313030307d5d2c5b226a6f622d342e30222c7b226f7574636f6d65223a2263616e63656c6c6564222c226174223a35307d5d5d7d0a7b224b657973223a5b5b22726564222c226b2d31222c7b226a6f62223a226a6f622d32222c22626f64795f68617368223a22616263222c226174223a31327d5d5d7d0a');


--
-- Data for Name: savepoints; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.savepoints VALUES (44, 1, 9111, true);


--
-- Data for Name: settings; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.settings VALUES ('cluster', '{"objective":"fair","default_priority":100,"queue_size_max":1000000,"tenant_jobs_max":200000,"aging_after_ms":300000,"aging_per_minute":10,"aging_max":500,"fair_share_max":400,"usage_half_life_ms":604800000,"max_wait_ms":43200000,"reservations":16,"reserve_one_node_in":8,"default_runtime_ms":3600000,"preemption":true,"preemption_min_runtime_ms":0,"preemption_cooldown_ms":600000,"stop_grace_ms":30000,"claim_ms":60000,"launch_backoff_ms":5000,"memory_ms":86400000,"remembered_max":100000,"gangs":true,"thermal":true,"thermal_limit_c":75,"cooling_ms":300000,"defragment":false,"weights":{"fragmentation":1000,"locality":1000,"health":1000,"policy":1000},"repartition":"propose","repartition_after_ms":60000,"repartition_cooldown_ms":600000,"policy_failure":"closed","utc_offset_minutes":0}', 500);


--
-- Data for Name: specs; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.specs VALUES (1, '{"name":"train-1","tenant":"red","user":"ada","priority":100,"tasks":[{"name":"worker","count":1,"each":{"gpus":2,"gpu_models":[],"gpu_memory_mib":1000,"gpu_compute_milli":1000,"isolation":"none","cpus":4,"memory_mib":8192}}],"topology":"any","time_limit_ms":60000,"restart":{"max_restarts":0,"max_requeues":5},"on_node_lost":"wait","checkpoint":null,"after":[],"start_after":null,"pool":null,"node_labels":{},"run":{"image":null,"script":null,"command":["true"],"args":[],"env":{},"directory":null},"labels":{},"annotations":{}}');
INSERT INTO public.specs VALUES (2, '{"name":"eval","tenant":"red","user":"ada","priority":100,"tasks":[{"name":"worker","count":1,"each":{"gpus":1,"gpu_models":[],"gpu_memory_mib":1000,"gpu_compute_milli":1000,"isolation":"none","cpus":4,"memory_mib":8192}}],"topology":"any","time_limit_ms":60000,"restart":{"max_restarts":0,"max_requeues":5},"on_node_lost":"wait","checkpoint":null,"after":[{"job":"job-1","when":"succeeded"}],"start_after":5000,"pool":null,"node_labels":{},"run":{"image":null,"script":null,"command":["true"],"args":[],"env":{},"directory":null},"labels":{"team":"vision"},"annotations":{"muster.sim/runtime":"20s"}}');
INSERT INTO public.specs VALUES (3, '{"name":"train-3","tenant":"red","user":"ada","priority":100,"tasks":[{"name":"worker","count":1,"each":{"gpus":2,"gpu_models":[],"gpu_memory_mib":1000,"gpu_compute_milli":1000,"isolation":"none","cpus":4,"memory_mib":8192}}],"topology":"any","time_limit_ms":60000,"restart":{"max_restarts":0,"max_requeues":5},"on_node_lost":"wait","checkpoint":null,"after":[],"start_after":null,"pool":null,"node_labels":{},"run":{"image":null,"script":null,"command":["true"],"args":[],"env":{},"directory":null},"labels":{},"annotations":{}}');
INSERT INTO public.specs VALUES (4, '{"name":"train-4","tenant":"red","user":"ada","priority":100,"tasks":[{"name":"worker","count":1,"each":{"gpus":1,"gpu_models":[],"gpu_memory_mib":1000,"gpu_compute_milli":1000,"isolation":"none","cpus":4,"memory_mib":8192}}],"topology":"any","time_limit_ms":60000,"restart":{"max_restarts":0,"max_requeues":5},"on_node_lost":"wait","checkpoint":null,"after":[],"start_after":null,"pool":null,"node_labels":{},"run":{"image":null,"script":null,"command":["true"],"args":[],"env":{},"directory":null},"labels":{},"annotations":{}}');


--
-- Data for Name: submission_keys; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.submission_keys VALUES ('red', 'k-1', 2, 'abc', 12);


--
-- Data for Name: tenants; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.tenants VALUES ('old', 'old', '', '', NULL, 'medium', 100, true, true, false, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, '{"name":"old","email":"","organization":"","parent":null,"maximum":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"maximum_per_user":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"guaranteed":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"maximum_by_model":{},"guaranteed_by_model":{},"budget":{"gpu_ms":null,"cost_micro":null,"energy_mj":null},"tier":"medium","weight":100,"decay_milli_per_day":0,"may_be_preempted":true,"may_preempt":true,"preemptions_per_job_max":null,"preemption_loss_gpu_ms_per_day":null,"billed":false,"price_gpu_hour_micro":0,"active":true,"notify":{},"labels":{}}', 1, 500, 500);
INSERT INTO public.tenants VALUES ('red', 'red', '', '', NULL, 'medium', 100, true, true, true, 6, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 6000, NULL, NULL, NULL, NULL, '{"name":"red","email":"","organization":"","parent":null,"maximum":{"gpus":6,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"maximum_per_user":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"guaranteed":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"maximum_by_model":{},"guaranteed_by_model":{},"budget":{"gpu_ms":null,"cost_micro":null,"energy_mj":null},"tier":"medium","weight":100,"decay_milli_per_day":0,"may_be_preempted":true,"may_preempt":true,"preemptions_per_job_max":null,"preemption_loss_gpu_ms_per_day":null,"billed":false,"price_gpu_hour_micro":0,"active":true,"notify":{},"labels":{}}', 1, 2, NULL);


--
-- Data for Name: tokens; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.tokens VALUES ('t-1', '5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8', 'ci', 'member', 'red', 4, 9000000, 500);


--
-- Data for Name: usage; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.usage VALUES (1, -1, 1, 'job-1', 'red', 'ada', 2, 100, 900, 900, 3600, 7200, 5, 7);
INSERT INTO public.usage VALUES (3, -1, 1, 'job-3', 'red', 'ada', 2, 500, 1000, 900, 3600, 7200, 5, 0);
INSERT INTO public.usage VALUES (4, 1, 1, 'job-4.1', 'red', 'ada', 1, 100, 500, 0, 0, 0, 0, 0);


--
-- Data for Name: waits; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.waits VALUES (30, 'b-1', 500, '[{"reason":"Reservation","job":"job-1"}]');


--
-- Data for Name: windows; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.windows VALUES (16, 'repair', '["n3"]', 10, 20, 'red', 'a new fan', 'ada', 500, 500, 'over');


--
-- Name: attempts attempts_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT attempts_pkey PRIMARY KEY (number, idx, attempt);


--
-- Name: attempts attempts_seq_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT attempts_seq_key UNIQUE (seq);


--
-- Name: audit audit_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (seq);


--
-- Name: claims claims_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.claims
    ADD CONSTRAINT claims_pkey PRIMARY KEY (seq);


--
-- Name: cluster cluster_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.cluster
    ADD CONSTRAINT cluster_pkey PRIMARY KEY (id);


--
-- Name: gpus gpus_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.gpus
    ADD CONSTRAINT gpus_pkey PRIMARY KEY (node, idx);


--
-- Name: job_counts job_counts_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.job_counts
    ADD CONSTRAINT job_counts_pkey PRIMARY KEY (tenant, state);


--
-- Name: job_labels job_labels_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.job_labels
    ADD CONSTRAINT job_labels_pkey PRIMARY KEY (label, value, number);


--
-- Name: jobs jobs_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (number, idx);


--
-- Name: journal journal_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.journal
    ADD CONSTRAINT journal_pkey PRIMARY KEY (seq);


--
-- Name: leader leader_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.leader
    ADD CONSTRAINT leader_pkey PRIMARY KEY (id);


--
-- Name: leases leases_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (number, idx, attempt, rank, node, gpu);


--
-- Name: nodes nodes_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.nodes
    ADD CONSTRAINT nodes_pkey PRIMARY KEY (id);


--
-- Name: policies policies_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.policies
    ADD CONSTRAINT policies_pkey PRIMARY KEY (version);


--
-- Name: refinery_schema_history refinery_schema_history_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.refinery_schema_history
    ADD CONSTRAINT refinery_schema_history_pkey PRIMARY KEY (version);


--
-- Name: savepoint_chunks savepoint_chunks_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.savepoint_chunks
    ADD CONSTRAINT savepoint_chunks_pkey PRIMARY KEY (seq, chunk);


--
-- Name: savepoints savepoints_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.savepoints
    ADD CONSTRAINT savepoints_pkey PRIMARY KEY (seq);


--
-- Name: settings settings_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.settings
    ADD CONSTRAINT settings_pkey PRIMARY KEY (name);


--
-- Name: specs specs_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.specs
    ADD CONSTRAINT specs_pkey PRIMARY KEY (number);


--
-- Name: submission_keys submission_keys_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.submission_keys
    ADD CONSTRAINT submission_keys_pkey PRIMARY KEY (tenant, key);


--
-- Name: tenants tenants_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.tenants
    ADD CONSTRAINT tenants_pkey PRIMARY KEY (id);


--
-- Name: tokens tokens_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT tokens_pkey PRIMARY KEY (id);


--
-- Name: usage usage_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.usage
    ADD CONSTRAINT usage_pkey PRIMARY KEY (number, idx, attempt);


--
-- Name: waits waits_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.waits
    ADD CONSTRAINT waits_pkey PRIMARY KEY (seq);


--
-- Name: windows windows_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.windows
    ADD CONSTRAINT windows_pkey PRIMARY KEY (seq);


--
-- Name: attempts_by_tenant; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_by_tenant ON public.attempts USING btree (tenant, seq);


--
-- Name: attempts_live; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX attempts_live ON public.attempts USING btree (number, idx) WHERE (ended_at IS NULL);


--
-- Name: attempts_live_by_seq; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_live_by_seq ON public.attempts USING btree (seq) WHERE (ended_at IS NULL);


--
-- Name: claims_live; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX claims_live ON public.claims USING btree (number, idx) WHERE (ended_at IS NULL);


--
-- Name: jobs_by_state; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX jobs_by_state ON public.jobs USING btree (state, number, idx);


--
-- Name: jobs_by_tenant_state; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX jobs_by_tenant_state ON public.jobs USING btree (tenant, state, number, idx);


--
-- Name: jobs_by_user; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX jobs_by_user ON public.jobs USING btree (user_name, number, idx);


--
-- Name: journal_by_job; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX journal_by_job ON public.journal USING btree (job_number, seq) WHERE (job_number IS NOT NULL);


--
-- Name: leases_by_node; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX leases_by_node ON public.leases USING btree (node, seq);


--
-- Name: leases_live; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX leases_live ON public.leases USING btree (node, gpu, slot) WHERE ((to_ms IS NULL) AND (slot <> ALL (ARRAY['mps'::text, 'time-slice'::text])));


--
-- Name: submission_keys_by_age; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX submission_keys_by_age ON public.submission_keys USING btree (at_ms);


--
-- Name: usage_by_end; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX usage_by_end ON public.usage USING btree (to_ms);


--
-- Name: usage_by_tenant; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX usage_by_tenant ON public.usage USING btree (tenant, to_ms);


--
-- Name: waits_by_bucket; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX waits_by_bucket ON public.waits USING btree (bucket, at_ms);


--
-- Name: windows_open; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX windows_open ON public.windows USING btree (name) WHERE (closed_at IS NULL);


--
-- Name: jobs jobs_counted_on_update; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER jobs_counted_on_update AFTER UPDATE ON public.jobs REFERENCING OLD TABLE AS old_jobs NEW TABLE AS new_jobs FOR EACH STATEMENT EXECUTE FUNCTION public.count_moved_jobs();


--
-- Name: jobs jobs_stay_ended; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER jobs_stay_ended BEFORE UPDATE ON public.jobs FOR EACH ROW WHEN ((old.ended_at IS NOT NULL)) EXECUTE FUNCTION public.refuse_change_of_ended_job();


--
-- Name: gpus gpus_node_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.gpus
    ADD CONSTRAINT gpus_node_fkey FOREIGN KEY (node) REFERENCES public.nodes(id);


--
-- PostgreSQL database dump complete
--


