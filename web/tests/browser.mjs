// Starts Debian's Chromium, and opens the sample reports that `cargo run --example sample` wrote.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

export const samples = resolve(process.env.WEBDYNO_SAMPLES ?? "../target/samples");
const profile = mkdtempSync(join(tmpdir(), "webdyno-web-"));

/** A browser with a profile of its own; network is off for its pages, clipboard is allowed. */
export async function start() {
    const context = await chromium.launchPersistentContext(profile, {
        executablePath: process.env.WEBDYNO_CHROMIUM ?? "/usr/bin/chromium",
        headless: true,
        offline: true,
        acceptDownloads: false,
        permissions: ["clipboard-read", "clipboard-write"],
        args: [
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ],
    });
    const close = async () => {
        await context.close();
        rmSync(profile, { recursive: true, force: true });
    };
    return { context, close };
}

/** A report in a window of this size. What a console or a request reports is in `troubles`; what it asked for, in `requests`. */
export async function open(context, name, { width = 1400, height = 1000, scheme = "light" } = {}) {
    const page = await context.newPage();
    const [troubles, requests] = [[], []];
    const url = pathToFileURL(join(samples, `${name}.html`)).href;
    page.on("console", (message) => ["error", "warning"].includes(message.type()) && troubles.push(message.text()));
    page.on("pageerror", (error) => troubles.push(String(error)));
    page.on("request", (request) => request.url() !== url && requests.push(request.url()));
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme: scheme });
    await page.goto(url);
    await page.waitForSelector("main[data-ready]");
    return { page, troubles, requests };
}

/** Waits until what is drawn is drawn. */
export async function settled(page) {
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
}
