// What the pages of `webdyno serve` promise, over the program itself: a history that is filtered, sorted and compared by keyboard,
// a trend with its table, on any width, in light and dark, and strings of recordings as text.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, test } from "node:test";
import { settled, start } from "./browser.mjs";

const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const program = resolve(process.env.WEBDYNO ?? "../target/debug/webdyno");
const recording = readFileSync(resolve("../crates/webdyno/tests/it/recordings/v0.1.0-tune/events.jsonl"), "utf8");
const MARKUP = "<img src=x onerror=alert(1)>";

let context, close, server, root, url;
before(async () => {
    root = mkdtempSync(join(tmpdir(), "webdyno-sessions-"));
    for (let day = 1; day <= 12; day++) record(`s${day}`, day);
    record(MARKUP, 20);
    record("under-way", 21, (text) => text.split("\n").slice(0, 60).join("\n") + "\n");
    writeFileSync(join(root, "shop.toml"), 'base = "http://127.0.0.1:9"\nduration = "1s"\nusers = 1\n[[page]]\nurl = "/"\n');
    server = spawn(program, ["serve", root, "--control"], { stdio: ["ignore", "pipe", "inherit"] });
    url = await new Promise((done) => server.stdout.once("data", (line) => done(String(line).trim())));
    ({ context, close } = await start());
    await context.setOffline(false);
});
after(async () => {
    await close();
    server.kill();
    rmSync(root, { recursive: true, force: true });
});

/** A copy of the recording that began on this day. */
function record(name, day, change = (text) => text) {
    mkdirSync(join(root, name));
    const at = `"started_at":"2026-11-${String(day).padStart(2, "0")}T10:00:00Z"`;
    writeFileSync(join(root, name, "events.jsonl"), change(recording.replace(/"started_at":"[^"]*"/, at)));
}

async function open(path = "", { width = 1400, scheme = "light" } = {}) {
    const page = await context.newPage();
    const troubles = [];
    page.on("console", (message) => ["error", "warning"].includes(message.type()) && troubles.push(message.text()));
    page.on("pageerror", (error) => troubles.push(String(error)));
    page.on("request", (request) => !request.url().startsWith(url) && !request.url().startsWith("data:") && troubles.push(request.url()));
    await page.setViewportSize({ width, height: 900 });
    await page.emulateMedia({ colorScheme: scheme });
    await page.goto(url + path);
    await page.waitForSelector("h1");
    return { page, troubles };
}

const rows = (page) => page.$$eval("[aria-label=Sessions] tbody tr", (all) => all.map((row) => row.children[2].textContent));
const count = (page, least) => page.waitForFunction((n) => document.querySelectorAll("tbody tr").length >= n, least);

test("the history is filtered and sorted by keyboard, and two are compared", async () => {
    const { page, troubles } = await open();
    await count(page, 14);
    assert.deepEqual((await rows(page)).slice(0, 3), ["under-way", MARKUP, "s12"], "newest first, markup as text");
    await page.keyboard.press("/");
    await page.keyboard.type("s1 tune");
    assert.deepEqual(await rows(page), ["s12", "s11", "s10", "s1"]);
    assert.match(await page.textContent(".tools [role=status]"), /4 of 14 sessions/);
    await page.focus("text=Time (UTC)");
    await page.keyboard.press("Enter");
    assert.deepEqual(await rows(page), ["s1", "s10", "s11", "s12"]);
    assert.equal(await page.getAttribute("th:has-text('Time')", "aria-sort"), "ascending");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Time (UTC) ↑", "the focus stays");
    await page.focus("[aria-label='Compare s10']");
    await page.keyboard.press("Space");
    assert.match(await page.textContent(".compare"), /baseline and best load of s10/);
    await page.focus("[aria-label='Compare s1']");
    await page.keyboard.press("Space");
    await page.focus("text=Compare s1 (A) with s10 (B)");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".headline");
    assert.match(await page.textContent(".headline"), /^B serves the same rate as A/);
    const rate = await page.$eval("tbody tr", (row) => [...row.children].map((cell) => cell.textContent));
    assert.equal(rate[0], "successful requests");
    assert.equal(rate[5], "same");
    await page.goBack();
    await count(page, 4);
    assert.equal(await page.inputValue("#filter"), "s1 tune", "the filter is kept");
    assert.deepEqual(troubles, []);
    await page.close();
});

test("the baseline of a tuning is compared with its best load", async () => {
    const { page, troubles } = await open("compare?a=s1");
    await page.waitForSelector(".headline");
    assert.match(await page.textContent(".headline"), /^B serves 3\.0x the rate of A/);
    assert.ok((await page.$$(".interval.good")).length > 0);
    assert.deepEqual(troubles, []);
    await page.goto(`${url}compare?a=s1&b=none`);
    await page.waitForSelector("[role=alert]");
    assert.match(await page.textContent("[role=alert]"), /there is no session `none`/);
    await page.close();
});

test("the trend has its figures in a table", async () => {
    const { page } = await open();
    await page.waitForSelector("#trend-rate canvas");
    await page.click("#trend-rate ~ details summary");
    await page.waitForSelector("#trend-rate ~ details tbody tr");
    const figures = await page.$$eval("#trend-rate ~ details tbody tr", (all) => all.map((row) => row.children[1].textContent));
    assert.ok(figures.length >= 13 && figures.includes(MARKUP), figures.join());
    await page.close();
});

test("nothing is wider than the screen, and axe finds nothing, in light and dark", async () => {
    for (const path of ["", "compare?a=s1", "compare?a=s1&b=s2", "sessions/s1"]) {
        for (const [width, scheme] of [[1400, "light"], [320, "dark"], [320, "light"]]) {
            const { page, troubles } = await open(path, { width, scheme });
            await page.waitForSelector("table");
            await settled(page);
            const name = `${path} ${width} ${scheme}`;
            assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth), 0, name);
            // Past the policy of the page, which would not let it in.
            const client = await context.newCDPSession(page);
            await client.send("Runtime.evaluate", { expression: readFileSync(axe, "utf8") });
            const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
            const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ")}`);
            assert.deepEqual(found, [], name);
            assert.deepEqual(troubles, [], name);
            await page.close();
        }
    }
});

test("a report leads back to all, and a saved workload is started", async () => {
    const { page, troubles } = await open(`sessions/${encodeURIComponent(MARKUP)}`);
    await page.waitForSelector("main h2");
    await page.click("text=All sessions");
    await page.click("text=Start shop");
    await page.waitForFunction(() => /shop (runs|ended)/.test(document.body.textContent));
    await page.waitForFunction(() => /shop ended with exit code/.test(document.body.textContent), null, { timeout: 60_000 });
    assert.deepEqual(troubles, []);
    await page.close();
});
