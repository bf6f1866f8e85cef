import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { readVcpAddress, vcpPaths } from "./client-types.ts";

describe("an address of VCP", () => {
  test.each([
    ["/VCPlog/VCP_Key=abc", { path: "VCPlog", key: "abc", deviceName: undefined }],
    ["/VCPlog", { path: "VCPlog", key: undefined, deviceName: undefined }],
    ["/vcpinfo/VCP_Key=a%2Fb?deviceName=My%20Mac", { path: "vcpinfo", key: "a/b", deviceName: "My Mac" }],
    ["/vcp-distributed-server/VCP_Key=?devicename=x", { path: "vcp-distributed-server", key: "", deviceName: "x" }],
    ["/vcp-chrome-control/VCP_Key=%zz?device_name=", { path: "vcp-chrome-control", key: "%zz", deviceName: undefined }],
  ])("is read: %s", (target, address) => {
    expect(readVcpAddress(target)).toEqual(address);
  });

  test.each([
    "/vcplog/VCP_Key=a",
    "/VCPLOG",
    "/VCPlog/vcp_key=a",
    "/VCPlog/VCP_Key=a/b",
    "/constructor",
    "//VCPlog",
    "/ws",
  ])("is none: %s", (target) => {
    expect(readVcpAddress(target)).toBeUndefined();
  });

  test("names a known path, whatever is asked", () => {
    const piece = fc.constantFrom("/", "VCPlog", "vcpinfo", "VCP_Key=", "?", "deviceName=", "%", "a", "toString");
    fc.assert(
      fc.property(fc.array(piece), (pieces) => {
        const address = readVcpAddress(pieces.join(""));
        expect(address === undefined || Object.keys(vcpPaths).includes(address.path)).toBe(true);
      }),
    );
  });
});
