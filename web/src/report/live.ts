// A session that still runs: its data, then each second as it comes. Nothing is requested but below the page's own source.
import type { PageData, Responses } from "./data";
import { show } from "./page";
import type { TimePlots } from "./plots";

/** A second of load or of readings; unknown is null. */
interface Second {
    load?: number;
    t_s: number;
    rate?: number | null;
    p50_us?: number | null;
    p99_us?: number | null;
    failed?: number | null;
    in_flight?: number | null;
    latency?: Responses | null;
    signals?: Record<string, number | null>;
}

/** Plots appear with the first figures of their kind; so often at most they are looked for. */
const RELOAD_MS_MIN = 3000;

/** Shows what is there, and follows what comes until the session ends. */
export async function follow(main: HTMLElement, source: string): Promise<void> {
    let plots: TimePlots | null = null;
    let loaded = 0;
    const load = async () => {
        loaded = Date.now();
        const response = await fetch(source);
        if (!response.ok) throw new Error(`${source}: status ${response.status}`);
        const open = openFolds(main);
        const page = show(main, (await response.json()) as PageData);
        page.draw();
        plots = page.plots;
        main.classList.add("live");
        reopen(main, open);
    };
    await load();
    const events = new EventSource(`${source}/events`);
    const reload = () => void load().catch(() => undefined);
    events.addEventListener("second", (event) => {
        const { load: _, t_s, latency, signals, ...figures } = JSON.parse((event as MessageEvent<string>).data) as Second;
        const isShown = plots?.append({ ...figures, ...signals }, t_s) ?? false;
        if (latency) plots?.appendResponses(latency, t_s);
        if (!isShown && Date.now() - loaded > RELOAD_MS_MIN) reload();
    });
    events.addEventListener("changed", reload);
    events.addEventListener("end", () => {
        events.close();
        reload();
    });
}

function openFolds(main: HTMLElement): Set<string> {
    const open = main.querySelectorAll("details[open] > summary");
    return new Set([...open].map((summary) => summary.textContent ?? ""));
}

function reopen(main: HTMLElement, open: Set<string>): void {
    for (const summary of main.querySelectorAll("summary")) {
        const fold = summary.parentElement;
        if (fold instanceof HTMLDetailsElement && open.has(summary.textContent ?? "")) fold.open = true;
    }
}
