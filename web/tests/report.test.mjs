// What a report promises to whoever opens its file: that it needs nothing else, fits any screen, can be read with keys and by
// screen readers, and shows strings of a recording as text.
import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { open, samples, settled, start } from "./browser.mjs";

const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const names = readdirSync(samples).filter((file) => file.endsWith(".html") && file !== "live.html").map((file) => file.slice(0, -5));
/** One of each kind, with all that a page can show. */
const KINDS = ["run_with_errors", "run_with_pages", "diagnosis_exhausted", "tune_kept", "tune_planned", "sweep"];

let context, close;
before(async () => ({ context, close } = await start()));
after(() => close());

const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
const openFolds = (page, which = "details") =>
    page.evaluate(async (which) => {
        for (let closed; (closed = document.querySelectorAll(`${which}:not([open])`)).length > 0; ) {
            for (const fold of closed) fold.open = true;
            await new Promise((done) => setTimeout(done, 50));
        }
    }, which);

/** Waits until something is so. */
async function until(is) {
    for (let waited = 0; !(await is()); waited++) {
        assert.ok(waited < 200, `never: ${is}`);
        await new Promise((done) => setTimeout(done, 50));
    }
}

test("every report shows an answer, asks for nothing, and fits the screens there are", async () => {
    const plain = names.filter((name) => !name.startsWith("markup_in_"));
    assert.ok(plain.length > 15, plain.join());
    for (const name of plain) {
        const { page, troubles, requests } = await open(context, name);
        for (const width of [1400, 400, 320]) {
            await page.setViewportSize({ width, height: 900 });
            await settled(page);
            assert.equal(await overflow(page), 0, `${name} at ${width}`);
        }
        assert.ok((await page.textContent("h1")).length > 5, name);
        assert.deepEqual({ troubles, requests }, { troubles: [], requests: [] }, name);
        await page.close();
    }
});

test("with all folds open, in the dark and on paper nothing is wider than the screen either", async () => {
    for (const name of KINDS) {
        const { page, troubles } = await open(context, name, { scheme: "dark" });
        await openFolds(page);
        for (const [media, width] of [["screen", 1400], ["screen", 400], ["screen", 320], ["print", 700]]) {
            await page.emulateMedia({ media, colorScheme: "dark" });
            await page.setViewportSize({ width, height: 900 });
            await settled(page);
            assert.equal(await overflow(page), 0, `${name} ${media} at ${width}`);
        }
        const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
        assert.equal(ground, "rgb(255, 255, 255)", "paper is white, whatever the reader's system is");
        assert.deepEqual(troubles, [], name);
        await page.close();
    }
});

test("every plot is drawn, and has its figures in a table", async () => {
    const expected = { tune_kept: ["rate", "latency", "in-flight", "latency-heat-map", "spread"], run_with_pages: ["page-rate", "page-spread"], sweep: ["curve-rate"] };
    for (const name of [...KINDS, "ten_minutes", "an_hour"]) {
        const { page } = await open(context, name);
        await openFolds(page);
        await settled(page);
        const plots = await page.$$eval("figure .plot", (frames) =>
            frames.map((frame) => {
                const canvas = frame.querySelector("canvas");
                const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
                let coloured = 0;
                for (let at = 0; at < data.length; at += 4) {
                    const [red, green, blue, alpha] = data.slice(at, at + 4);
                    if (alpha > 200 && Math.max(red, green, blue) - Math.min(red, green, blue) > 60) coloured++;
                }
                const rows = [...frame.closest("figure").querySelectorAll("details.data tbody tr")];
                const cells = rows.map((row) => [...row.children].map((cell) => cell.textContent));
                return { id: frame.id, coloured, rows: rows.length, sample: cells[Math.floor(cells.length / 2)] };
            }),
        );
        for (const id of expected[name] ?? []) assert.ok(plots.some((plot) => plot.id === id), `${name}: ${id}`);
        for (const plot of plots) {
            assert.ok(plot.coloured > 50 && plot.rows > 3 && plot.rows <= 200, `${name}: ${JSON.stringify(plot)}`);
            assert.ok(plot.sample.every((cell) => cell !== "" && !/NaN|undefined/.test(cell)), `${name}: ${plot.sample}`);
        }
        await page.close();
    }
});

test("a curve says its choice, shows its points in a table and names them under the pointer", async () => {
    const { page } = await open(context, "sweep");
    assert.match(await page.textContent("h1"), /choose 150/);
    await openFolds(page);
    await settled(page);
    const rows = await page.$$eval("figure:has(#curve-rate) tbody tr", (rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent)));
    assert.deepEqual(rows[2], ["150", "791/s", "785/s", "797/s"]);
    assert.equal(rows.length, 7);
    await page.focus("#curve-rate");
    await page.keyboard.press("Home");
    await page.waitForTimeout(50);
    assert.equal(await page.textContent("figure:has(#curve-rate) .place"), "at 100");
    await page.close();
});

test("pointer and zoom are shared, by mouse, buttons and keys", async () => {
    const { page } = await open(context, "ten_minutes");
    const frame = page.locator("#rate .u-over");
    await frame.scrollIntoViewIfNeeded();
    const box = await frame.boundingBox();
    const at = (share) => box.x + box.width * share;
    const middle = box.y + box.height / 2;
    await page.mouse.move(at(0.5), middle);
    const place = async (id) => page.textContent(`figure:has(#${id}) .place`);
    assert.match(await place("rate"), /^at [45]:\d\d$/);
    assert.equal(await place("latency"), await place("rate"));
    const shown = async () => {
        // The table has what is shown, at the time when it is opened.
        await page.$$eval("#course details.data", (folds) => folds.forEach((fold) => (fold.open = false)));
        await page.waitForTimeout(50);
        await openFolds(page);
        const ends = async (id) => page.$$eval(`figure:has(#${id}) tbody tr td:first-child`, (cells) => [cells[0], cells[cells.length - 1]].map((cell) => cell.textContent));
        const all = await Promise.all(["rate", "latency", "in-flight"].map(ends));
        assert.deepEqual(all[1], all[0]);
        assert.deepEqual(all[2], all[0]);
        return all[0].map((text) => Number(text.split(":")[0]) * 60 + Number(text.split(":")[1]));
    };
    const whole = await shown();
    assert.ok(whole[0] < 5 && whole[1] > 590, `${whole}`);
    await frame.scrollIntoViewIfNeeded();
    const now = await frame.boundingBox();
    await page.mouse.move(at(0.25), now.y + 50);
    await page.mouse.down();
    await page.mouse.move(at(0.5), now.y + 50, { steps: 5 });
    await page.mouse.up();
    const dragged = await shown();
    assert.ok(dragged[0] > 130 && dragged[1] < 330, `${dragged}`);
    await page.click("#course button[aria-label='Show all']");
    assert.deepEqual(await shown(), whole);
    await page.click("#course button[aria-label='Zoom in']");
    const closer = await shown();
    assert.ok(closer[1] - closer[0] < 320, `${closer}`);
    await page.focus("#latency");
    await page.keyboard.press("0");
    assert.deepEqual(await shown(), whole);
    await page.focus("#latency");
    await page.keyboard.press("End");
    await page.keyboard.press("ArrowLeft");
    assert.match(await page.textContent("figure:has(#latency) [aria-live]"), /^at \d+:\d\d, p50 \d.* ms, p99 \d/);
    await page.close();
});

test("axe finds nothing serious", async (t) => {
    for (const name of KINDS) {
        for (const scheme of name === "tune_kept" ? ["light", "dark"] : ["light"]) {
            const { page } = await open(context, name, { scheme });
            // The tables behind plots are alike: one is enough.
            await openFolds(page, "details:not(.data)");
            await openFolds(page, "figure:has(#rate) details");
            await page.addScriptTag({ path: axe });
            // In the dark only colours differ.
            const only = scheme === "dark" ? { runOnly: ["color-contrast"] } : {};
            const { violations } = await page.evaluate((only) => globalThis.axe.run(only), only);
            const told = violations.map(({ id, impact, nodes }) => `${impact}: ${id} at ${nodes[0].target} (${nodes.length})`);
            const serious = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
            assert.deepEqual(serious.map(({ id }) => id), [], `${name} ${scheme}: ${told.join("; ")}`);
            if (told.length > 0) t.diagnostic(`${name} ${scheme}: ${told.join("; ")}`);
            await page.close();
        }
    }
});

test("markup in any string of a recording is text", async () => {
    const attacked = names.filter((name) => name.startsWith("markup_in_"));
    assert.ok(attacked.length > 10);
    for (const name of attacked) {
        const { page, troubles, requests } = await open(context, name, { width: 320 });
        await openFolds(page);
        assert.equal(await overflow(page), 0, name);
        const found = await page.evaluate(() => ({
            broken: document.title === "broken",
            elements: document.querySelectorAll("img, b, iframe, script:nth-of-type(n + 3)").length,
            shown: document.body.innerText.includes("<b>bold</b>"),
        }));
        assert.deepEqual(found, { broken: false, elements: 0, shown: true }, name);
        assert.deepEqual({ troubles, requests }, { troubles: [], requests: [] }, name);
        await page.close();
    }
});

test("what is to be typed can be copied", async () => {
    const { page } = await open(context, "tune_kept");
    const copied = async (selector) => {
        await page.click(selector);
        await page.waitForFunction((selector) => document.querySelector(selector).textContent === "Copied", selector);
        await page.waitForTimeout(1600);
        return page.evaluate(() => navigator.clipboard.readText());
    };
    assert.equal(await copied(".command .copy"), "webdyno rollback");
    assert.match(await copied("header .code-block .copy"), /^--- \/tmp.*\+MaxRequestWorkers 64\n$/s);
    await page.click("figure:has(#rate) summary");
    assert.match(await copied("figure:has(#rate) .copy"), /^time,successful,failed\n1.5 s,3\d\d\/s,0\/s\n/);
    await page.close();
});

test("without scripts the answer is there", () => {
    const html = readFileSync(join(samples, "tune_kept.html"), "utf8");
    const body = html.slice(html.indexOf("<main>"), html.indexOf("</main>"));
    for (const part of ["<h1>750 → 2,190 req/s", "All Apache workers busy", "MaxRequestWorkers 20 → 64", "+ServerLimit 64", "<noscript>"]) {
        assert.ok(body.includes(part), part);
    }
});

test("a report is small, and zooms", async (t) => {
    const size = (name) => statSync(join(samples, `${name}.html`)).size;
    assert.ok(size("ten_minutes") < 2e6, `${size("ten_minutes")} bytes`);
    for (const name of ["ten_minutes", "an_hour"]) {
        const { page } = await open(context, name);
        await settled(page);
        const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime);
        const frames = await page.evaluate(async () => {
            const over = document.querySelector("#rate .u-over");
            const box = over.getBoundingClientRect();
            const [began, until] = [performance.now(), performance.now() + 1500];
            let count = 0;
            const buttons = ["Zoom in", "Later", "Zoom out"].map((label) => document.querySelector(`button[aria-label="${label}"]`));
            while (performance.now() < until) {
                const clientX = box.left + (box.width * (count % 50)) / 50;
                over.dispatchEvent(new MouseEvent("mousemove", { clientX, clientY: box.top + 50, bubbles: true }));
                if (count % 10 === 0) buttons[(count / 10) % 3].click();
                await new Promise((done) => requestAnimationFrame(done));
                count++;
            }
            return (count * 1000) / (performance.now() - began);
        });
        // How fast depends on what else the machine does, so it is told and not asserted; how much there is to draw is not.
        const elements = await page.evaluate(() => document.querySelectorAll("*").length);
        t.diagnostic(`${name}: ${size(name)} bytes, ${elements} elements, first paint ${paint.toFixed(0)} ms, ${frames.toFixed(0)} frames/s while zooming`);
        assert.ok(elements < 2000 && frames > 0, `${elements} elements, ${frames} frames/s`);
        await page.close();
    }
});

test("a session that runs is followed, and only its own source is asked", async () => {
    const streams = [];
    const data = JSON.parse(readFileSync(join(samples, "live.json"), "utf8"));
    const asked = [];
    const server = createServer((request, response) => {
        asked.push(request.url);
        if (request.url === "/token/") return response.setHeader("content-type", "text/html").end(readFileSync(join(samples, "live.html")));
        if (request.url === "/token/session") return response.end(JSON.stringify(data));
        if (request.url !== "/token/session/events") return response.writeHead(404).end();
        response.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();
        streams.push(response);
    });
    await new Promise((done) => server.listen(0, "127.0.0.1", done));
    await context.setOffline(false);
    const page = await context.newPage();
    const troubles = [];
    page.on("console", (message) => message.type() === "error" && !/favicon/.test(message.location().url) && troubles.push(message.text()));
    page.on("pageerror", (error) => troubles.push(String(error)));
    await page.goto(`http://127.0.0.1:${server.address().port}/token/`);
    await page.waitForSelector("#rate");
    await until(() => streams.length > 0);
    const send = (event, body) => streams[0].write(`event: ${event}\ndata: ${JSON.stringify(body)}\n\n`);
    send("second", { load: 4, t_s: 60.5, rate: 1234, p50_us: 7000, p99_us: null, failed: 3, in_flight: 9, latency: { edges_us: [7000, 8000, 30000000, 40000000], counts: [5, 0, 2] }, signals: { "CPU: busy": 0.5 } });
    const last = (id) => page.evaluate((id) => {
        const fold = document.querySelector(`figure:has(#${id}) details.data`);
        fold.open = false;
        return new Promise((done) => setTimeout(() => {
            fold.open = true;
            setTimeout(() => done([...fold.querySelectorAll("tbody tr:last-child td")].map((cell) => cell.textContent)), 60);
        }, 60));
    }, id);
    await until(async () => (await last("rate"))[0] === "60.5 s");
    assert.deepEqual(await last("rate"), ["60.5 s", "1,234/s", "3/s"]);
    assert.deepEqual(await last("latency"), ["60.5 s", "7 ms", "unknown"]);
    const [, requests, fastest, , slowest] = await last("latency-heat-map");
    assert.equal(requests, "7", "the map grows with each second");
    assert.match(fastest, / ms$/);
    assert.match(slowest, /^\d.* s to \d.* s$/, "also beyond its bounds");
    data.summary.headline = "It ended well";
    send("changed", {});
    await page.waitForFunction(() => document.querySelector("h1").textContent === "It ended well");
    assert.equal(await page.evaluate(() => document.querySelector("figure:has(#rate) details.data").open), true, "what was open stays open");
    send("end", {});
    await until(() => asked.filter((url) => url === "/token/session").length === 3);
    assert.deepEqual(asked.filter((url) => !["/token/", "/token/session", "/token/session/events", "/favicon.ico"].includes(url)), []);
    assert.deepEqual(troubles, []);
    await page.close();
    await context.setOffline(true);
    server.closeAllConnections();
    server.close();
});

async function takePictures(folder) {
    mkdirSync(folder, { recursive: true });
    for (const [file, name, selector, scheme] of [
        ["report-answer", "tune_kept", null, "light"],
        ["report-plots", "tune_kept", "#course", "light"],
        ["report-diagnosis", "diagnosis_exhausted", null, "dark"],
        ["report-waterfall", "run_with_pages", "#waterfall", "light"],
    ]) {
        const { page } = await open(context, name, { width: 1280, height: 860, scheme });
        await settled(page);
        const path = join(folder, `${file}.png`);
        await (selector ? page.locator(selector).screenshot({ path }) : page.screenshot({ path }));
        assert.ok(statSync(path).size < 300_000, path);
        await page.close();
    }
}

const pictures = process.env.WEBDYNO_SCREENSHOTS;
if (pictures) test("pictures for the documentation", () => takePictures(pictures));
