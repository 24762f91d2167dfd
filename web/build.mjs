// Builds each entry of src into one script and one style sheet with fixed names: `node build.mjs [FOLDER]`, by default dist.
// The bundles are part of the program (crates/report), so the same sources must give the same bytes: all versions are locked.
import { existsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";

const root = dirname(fileURLToPath(import.meta.url));
const outDir = resolve(process.argv[2] ?? resolve(root, "dist"));
// One script each that needs no loader: neither a file nor a page below a token may ask for another one.
for (const name of ["report", "sessions"].filter((name) => existsSync(resolve(root, "src", name, "main.ts")))) {
    await build({
        configFile: false,
        root,
        publicDir: false,
        logLevel: "warn",
        esbuild: { legalComments: "inline" },
        build: {
            outDir,
            emptyOutDir: false,
            target: "es2020",
            minify: "esbuild",
            reportCompressedSize: false,
            // MIT asks that the notice goes with the copy.
            rollupOptions: { output: { banner: `/*! With uPlot: Copyright (c) 2022 Leon Sorokin, MIT License (https://github.com/leeoniya/uPlot) */` } },
            lib: {
                entry: resolve(root, "src", name, "main.ts"),
                formats: ["iife"],
                name: `webdyno_${name}`,
                fileName: () => `${name}.js`,
                cssFileName: name,
            },
        },
    });
}
