import { expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { readVcpSource } from "./folders.ts";

test(`a manifest that is nested too deep to be written is refused ${verifies("VCP-24")}`, async () => {
  const manifest = JSON.parse(`{"name":${"[".repeat(20_000)}${"]".repeat(20_000)}}`) as never;
  await expect(readVcpSource({ manifest })).rejects.toThrow(
    expect.objectContaining({ code: "invalid_request", details: { param: "vcp.manifest" } }),
  );
});
