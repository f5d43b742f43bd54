// The page is built into the Python package, which ships it. Every address is relative, so that a proxy may put the
// server below a path.
import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../src/triever/serve/page",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false, // one file needs none
    assetsInlineLimit: 0, // the policy of the server allows no inline script or style
    reportCompressedSize: false,
  },
  server: { proxy: { "/v1": "http://127.0.0.1:8000" } },
  test: { include: ["test/**/*.test.{js,jsx}"] },
});
