// What the server says of sessions (crates/webdyno/src/web), and how it is fetched: only below the token's path.

export interface Session {
    id: string;
    started_at: string;
    command: string;
    target: string | null;
    state: string;
    rate: number | null;
    p99_us: number | null;
    limit: string | null;
    limit_title: string | null;
    error: string | null;
}

export interface SessionList {
    directory: string;
    sessions: Session[];
}

export interface Metric {
    name: string;
    ratio: number | null;
    ci95: [number, number] | null;
    verdict: string;
}

export interface Comparison {
    headline: string;
    differences: string[];
    columns: string[];
    rows: string[][];
    verdicts_mean: string;
    report: { a: string; b: string; a_load: number; b_load: number; metrics: Metric[] };
}

export interface Workloads {
    workloads: string[];
    run?: { workload: string; session: string; is_over: boolean; exit_code: number | null; error: string | null } | null;
}

/** JSON from a path below the token; an error has the server's words. */
export async function fetchJson<T>(path: string, method = "GET"): Promise<T> {
    const response = await fetch(path, { method });
    if (!response.ok) throw new Error((await response.text()).trim() || `status ${response.status}`);
    return (await response.json()) as T;
}

/** Where a session's report is. */
export function reportPath(base: string, id: string): string {
    return `${base}sessions/${encodeURIComponent(id)}`;
}

/** `2026-11-24 10:47`, as recorded: UTC. */
export function when(startedAt: string): string {
    return startedAt.slice(0, 16).replace("T", " ") || "unknown";
}
