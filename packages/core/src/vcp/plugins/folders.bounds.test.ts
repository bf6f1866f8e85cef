import { expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { readFolders } from "./folders.ts";

const file = (path: string): { readonly path: string; readonly body: Uint8Array } => ({
  path,
  body: Buffer.from("no manifest"),
});

test(`files belong to the outermost folder with a manifest, however many there are ${verifies("VCP-24")}`, () => {
  const many = Array.from({ length: 25_000 }, (_, at) => `p${at}/plugin-manifest.json`);
  const nested = ["p1/deep/plugin-manifest.json.block", "q/r/plugin-manifest.json", "q/r/s/plugin-manifest.json"];
  const { unusable, strays } = readFolders([...many, ...nested, "p1/x.js", "q/stray.js", "p/stray.js"].map(file));
  expect(unusable).toHaveLength(25_001);
  expect(unusable.slice(0, 3).map(({ label }) => label)).toEqual(["p0", "p1", "p10"]);
  expect(unusable.at(-1)?.label).toBe("q/r");
  expect(strays).toEqual(["q/stray.js", "p/stray.js"]);
  expect(readFolders(["plugin-manifest.json", "a/plugin-manifest.json"].map(file)).unusable).toMatchObject([
    { label: "." },
  ]);
});
