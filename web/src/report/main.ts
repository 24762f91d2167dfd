// The report of one session: from data in the page, or from a server that it asks for them.
import "../shared/base.css";
import "./report.css";
import { el } from "../shared/dom";
import type { PageData } from "./data";
import { follow } from "./live";
import { show } from "./page";

const main = document.querySelector("main");
const held = document.getElementById("page-data")?.textContent;
const source = main?.dataset["source"];
if (main && held) {
    void show(main, JSON.parse(held) as PageData)
        .drawByFrame()
        .then(() => (main.dataset["ready"] = ""));
} else if (main && source) {
    void follow(main, source).catch((error: unknown) => {
        main.replaceChildren(el("p", { class: "banner" }, `The session cannot be read: ${String(error)}`));
    });
}
