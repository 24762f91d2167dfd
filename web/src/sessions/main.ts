// The pages of many sessions: the history with its trend, and two side by side.
import "../shared/base.css";
import "./sessions.css";
import { el } from "../shared/dom";
import { showComparison } from "./comparison";
import { showHistory } from "./history";

const main = document.querySelector("main");
const { page, base } = main?.dataset ?? {};
if (main && base) {
    const show = page === "compare" ? showComparison : showHistory;
    void show(main, base).catch((error: unknown) => {
        const text = error instanceof Error ? error.message : String(error);
        main.append(el("p", { class: "banner", role: "alert" }, text));
    });
}
