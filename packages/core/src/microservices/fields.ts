/** Fields that configurations of instances and of registries share. */
import { isIP } from "node:net";
import * as z from "zod";
import { authorityOf } from "./instance.ts";

/** How calls are spread over instances (SVC-3). */
export const balances = ["round_robin", "random", "weighted", "least_pending"] as const;
export type Balance = (typeof balances)[number];

/** Of one service; each call looks at all of them. */
export const mostInstances = 1_000;

export const instanceHostSchema = z
  .string()
  .min(1)
  .max(253)
  .refine(
    (host) => isIP(host) !== 0 || /^[\p{L}\p{N}](?:[\p{L}\p{N}._-]*[\p{L}\p{N}])?\.?$/u.test(host),
    "must be a host name or an address, without scheme, port and path",
  )
  // Names that end in a number are addresses to a URL, and 10.0.0.256 is none.
  .refine((host) => URL.canParse(`http://${authorityOf({ host, port: 80 })}`), "is neither a host name nor an address");

export const portSchema = z.int().min(1).max(65_535).meta({ description: "Port." });
