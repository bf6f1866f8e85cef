/**
 * The code of the functions: the bundles that `npm run build` makes and the tests run, not a second set
 * made by SST with other settings (docs/decisions/0016). Built anew with every deploy, so none can be stale.
 */
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";

const names = ["api", "chat", "migration", "tick", "worker", "ws"] as const;
export type BundleName = (typeof names)[number];

const { root } = $cli.paths;

export function buildBundles(): void {
  // The Node 24 of `npm ci`, whatever Node runs SST.
  execFileSync(join(root, "node_modules/.bin/node"), [join(root, "functions/build.ts")], { cwd: root, stdio: "pipe" });
  for (const name of names) {
    mkdirSync(bundlePath(name), { recursive: true });
    copyFileSync(join(root, `functions/dist/${name}.mjs`), join(bundlePath(name), "index.mjs"));
  }
  copyMigrations(join(bundlePath("migration"), "migrations"));
}

/** A directory that becomes the whole zip file: the bundle as `index.mjs`, without maps and without the others. */
export function bundlePath(name: BundleName): string {
  return join(root, "functions/dist/deploy", name);
}

function copyMigrations(to: string): void {
  const from = join(root, "packages/db/migrations");
  mkdirSync(to, { recursive: true });
  for (const file of readdirSync(from)) if (file.endsWith(".sql")) copyFileSync(join(from, file), join(to, file));
}
