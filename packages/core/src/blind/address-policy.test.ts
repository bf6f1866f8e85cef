import { isIP } from "node:net";
import { describe, expect, test } from "vitest";
import fc from "fast-check";
import ipaddr from "ipaddr.js";
import * as z from "zod";
import corpus from "../../../../test/fixtures/ssrf.json" with { type: "json" };
import { GatewayError } from "../errors/gateway-error.ts";
import { createAddressPolicy, isSameAddress } from "./address-policy.ts";

const { ranges, hostnames } = z
  .object({
    ranges: z.object({ ipv4: z.array(z.array(z.string())), ipv6: z.array(z.array(z.string())) }),
    hostnames: z.object({ exact: z.array(z.string()), suffix: z.array(z.string()) }),
  })
  .parse(corpus);
const cidrs = [...ranges.ipv4, ...ranges.ipv6].map(([cidr = ""]) => cidr);

const strict = createAddressPolicy({ allowCidrs: [] });
const open = createAddressPolicy({ allowCidrs: ["0.0.0.0/0", "::/0"] });

/** First and last address of a block. */
function edges(cidr: string): readonly string[] {
  const [base, bits] = ipaddr.parseCIDR(cidr);
  const bytes = base.toByteArray();
  const at = (fill: number): string =>
    ipaddr
      .fromByteArray(
        bytes.map((byte, index) => {
          const kept = Math.min(8, Math.max(0, bits - index * 8));
          const mask = (0xff << (8 - kept)) & 0xff;
          return (byte & mask) | (fill & ~mask & 0xff);
        }),
      )
      .toString();
  return [at(0x00), at(0xff)];
}

const metadata = [
  "169.254.169.254",
  "169.254.170.2",
  "169.254.170.23",
  "169.254.0.23",
  "169.254.100.1",
  "100.100.100.200",
  "168.63.129.16",
  "192.0.0.192",
  "fd00:ec2::254",
  "fd00:ec2::23",
  "fd20:ce::254",
  "fd00:c1::a9fe:a9fe",
];

describe("address policy", () => {
  test.each(cidrs)("refuses the first and the last address of %s", (cidr) => {
    expect(edges(cidr).filter((address) => strict.refuseAddress(address, 80) === undefined)).toEqual([]);
  });

  test.each([
    "8.8.8.8",
    "172.15.255.255",
    "172.32.0.0",
    "100.63.255.255",
    "100.128.0.1",
    "192.0.1.1",
    "2606:4700:4700::1111",
  ])("allows the public address %s", (address) => {
    expect(strict.refuseAddress(address, 443)).toBeUndefined();
  });

  test.each(["4000::1", "1fff::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"])(
    "refuses %s: only 2000::/3 is public",
    (address) => {
      expect(strict.refuseAddress(address, 443)).toBeTypeOf("string");
    },
  );

  test.each(["", "localhost", "127.1", "0x7f.0.0.1", "2130706433", "1.2.3.4.5", "[::1]"])(
    "refuses %j, which is no address in its strict form",
    (text) => {
      expect(open.refuseAddress(text, 80)).toBe("not_an_address");
    },
  );

  test.each(metadata)("never opens the metadata address %s, whatever the operator lists", (address) => {
    expect(open.refuseAddress(address, 80)).toBeTypeOf("string");
    expect(createAddressPolicy({ allowCidrs: [address] }).refuseAddress(address, 80)).toBeTypeOf("string");
  });

  test("never opens a metadata address that an IPv6 address carries", () => {
    const wrapped = [
      "::ffff:169.254.169.254",
      "::169.254.169.254",
      "::ffff:0:a9fe:a9fe",
      "64:ff9b::a9fe:a9fe",
      "64:ff9b:1::a9fe:a9fe",
      "2002:a9fe:a9fe::1",
      // Teredo keeps the client's address inverted.
      "2001:0:4136:e378:8000:63bf:5601:5601",
    ];
    expect(wrapped.filter((address) => open.refuseAddress(address, 80) !== "metadata")).toEqual([]);
  });

  test("opens what the operator lists and nothing else", () => {
    const policy = createAddressPolicy({ allowCidrs: ["10.0.0.0/8", "127.0.0.1", "fd12::/16"] });
    expect(policy.refuseAddress("10.255.0.1", 80)).toBeUndefined();
    expect(policy.refuseAddress("127.0.0.1", 80)).toBeUndefined();
    expect(policy.refuseAddress("::ffff:10.0.0.1", 80)).toBeUndefined();
    expect(policy.refuseAddress("fd12::7", 80)).toBeUndefined();
    expect(policy.refuseAddress("127.0.0.2", 80)).toBe("loopback");
    expect(policy.refuseAddress("192.168.0.1", 80)).toBe("private");
    expect(policy.refuseAddress("fd13::7", 80)).toBe("private");
  });

  test("keeps a denied endpoint closed inside an open range, in either family's spelling", () => {
    const policy = createAddressPolicy({ allowCidrs: ["127.0.0.0/8"], deniedEndpoints: ["127.0.0.1:9001"] });
    expect(policy.refuseAddress("127.0.0.1", 9001)).toBe("denied_endpoint");
    expect(policy.refuseAddress("::ffff:127.0.0.1", 9001)).toBe("denied_endpoint");
    expect(policy.refuseAddress("127.0.0.1", 9002)).toBeUndefined();
  });

  test("refuses every listed host name and suffix", () => {
    const names = [...hostnames.exact, ...hostnames.suffix.map((suffix) => `a${suffix}`)];
    expect(names.filter((name) => strict.refuseName(name) === undefined)).toEqual([]);
    expect(strict.refuseName("METADATA.google.internal")).toBe("metadata");
    expect(strict.refuseName("mylocalhost")).toBeUndefined();
    expect(strict.refuseName("api.example.com")).toBeUndefined();
  });

  test("leaves inside names to the address check once private ranges are open, metadata names never", () => {
    const policy = createAddressPolicy({ allowCidrs: ["127.0.0.0/8"] });
    expect(policy.refuseName("localhost")).toBeUndefined();
    expect(policy.refuseName("crm.internal")).toBeUndefined();
    expect(policy.refuseName("metadata.google.internal")).toBe("metadata");
  });

  test.each(["10.0.0.0/33", "nonsense", "10.0.0/8", "fd00::/129", ""])("refuses the CIDR %j by name", (cidr) => {
    expect(() => createAddressPolicy({ allowCidrs: [cidr] })).toThrow(GatewayError);
  });

  test("knows two spellings of one address", () => {
    expect(isSameAddress("::ffff:1.2.3.4", "1.2.3.4")).toBe(true);
    expect(isSameAddress("2606:4700::0001", "2606:4700:0:0::1")).toBe(true);
    expect(isSameAddress("1.2.3.4", "1.2.3.5")).toBe(false);
    expect(isSameAddress("", "1.2.3.4")).toBe(false);
  });

  test("answers for any text without throwing", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.ipV4(), fc.ipV6()), fc.nat(65_535), (text, port) => {
        // What an empty list allows is public.
        const isPublic = isIP(text) !== 0 && ipaddr.parse(text).range() === "unicast";
        expect(strict.refuseAddress(text, port) !== undefined || isPublic).toBe(true);
      }),
    );
  });
});
