/**
 * The code of the functions: the bundles that `npm run build` makes and the tests run, not a second set
 * made by SST with other settings (docs/decisions/0024). Built anew with every deploy, so none can be stale.
 */
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";

const names = ["api", "chat", "migration", "tick", "worker", "ws"] as const;
export type BundleName = (typeof names)[number];

const { root } = $cli.paths;
const built = join(root, "functions/dist");

/** Which file of a build imports which, at once or later. */
type Outputs = Readonly<Record<string, { readonly imports: readonly { readonly path: string }[] }>>;

export function buildBundles(): void {
  // The Node 24 of `npm ci`, whatever Node runs SST.
  execFileSync(join(root, "node_modules/.bin/node"), [join(root, "functions/build/functions.ts")], {
    cwd: root,
    stdio: "pipe",
  });
  const { outputs } = JSON.parse(readFileSync(join(built, "meta.json"), "utf8")) as { readonly outputs: Outputs };
  for (const name of names) {
    for (const file of filesOf(outputs, `functions/dist/${name}.mjs`)) {
      const place = join(bundlePath(name), relative(built, join(root, file)));
      mkdirSync(dirname(place), { recursive: true });
      copyFileSync(join(root, file), place);
    }
  }
  copyMigrations(join(bundlePath("migration"), "migrations"));
}

/** A directory that becomes the whole zip file: the bundle and what it imports, without maps and the others. */
export function bundlePath(name: BundleName): string {
  return join(built, "deploy", name);
}

function filesOf(outputs: Outputs, file: string, found = new Set<string>()): ReadonlySet<string> {
  const output = outputs[file];
  if (output === undefined) return found;
  found.add(file);
  for (const { path } of output.imports) if (!found.has(path)) filesOf(outputs, path, found);
  return found;
}

function copyMigrations(to: string): void {
  const from = join(root, "packages/db/migrations");
  mkdirSync(to, { recursive: true });
  for (const file of readdirSync(from)) if (file.endsWith(".sql")) copyFileSync(join(from, file), join(to, file));
}
