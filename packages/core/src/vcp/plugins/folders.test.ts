import { expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { readVcpSource } from "./folders.ts";

test(`a manifest that is nested too deep to be written is refused ${verifies("VCP-24")}`, async () => {
  const manifest = JSON.parse(`{"name":${"[".repeat(20_000)}${"]".repeat(20_000)}}`) as never;
  await expect(readVcpSource({ manifest })).rejects.toThrow(
    expect.objectContaining({ code: "invalid_request", details: { param: "vcp.manifest" } }),
  );
});

test.each([
  [["p.js", "./p.js"], "'vcp.files' holds 'p.js' twice."],
  [["lib\\a.js", "lib/A.js"], "'vcp.files' holds 'lib/A.js' twice."],
  [["Plugin-Manifest.json"], "'vcp.files' holds 'Plugin-Manifest.json' twice."],
  [["lib", "lib/a.js"], "'vcp.files' holds 'lib/a.js', of which a part is a file and a folder at once."],
  [["./"], "'vcp.files' holds a file without a name."],
])(`files %j, which no call could be given, are refused ${verifies("VCP-24")}`, async (paths, message) => {
  const manifest = { name: "X", pluginType: "synchronous", entryPoint: { command: "node p.js" } };
  const files = paths.map((path) => ({ path, text: "" }));
  await expect(readVcpSource({ manifest, files })).rejects.toThrow(
    expect.objectContaining({ code: "invalid_request", message, details: { param: "vcp.files" } }),
  );
});
