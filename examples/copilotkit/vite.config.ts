import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// Everything beside the page is the desk, as behind a proxy of yours. The page and the desk
// are one site then, and the session of whoever signed in at the desk counts here too.
const site = {
  host: "127.0.0.1",
  proxy: {
    "^/(?!chat(?:[/?]|$))": {
      target: process.env.SAYSO_URL ?? "http://127.0.0.1:8000",
      ws: true,
    },
  },
};

export default defineConfig({
  base: "/chat/",
  plugins: [react()],
  server: site,
  preview: site,
  build: {
    reportCompressedSize: false,
    // Chat text may hold diagrams, formulas and code, and their renderers are large.
    chunkSizeWarningLimit: 4000,
  },
});
