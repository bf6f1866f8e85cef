/** Fields that configurations of instances and of registries share. */
import { isIP } from "node:net";
import * as z from "zod";

/** How calls are spread over instances (SVC-3). */
export const balances = ["round_robin", "random", "weighted", "least_pending"] as const;
export type Balance = (typeof balances)[number];

export const instanceHostSchema = z
  .string()
  .min(1)
  .max(253)
  .refine(
    (host) => isIP(host) !== 0 || /^[\p{L}\p{N}](?:[\p{L}\p{N}._-]*[\p{L}\p{N}])?\.?$/u.test(host),
    "must be a host name or an address, without scheme, port and path",
  );

export const portSchema = z.int().min(1).max(65_535).meta({ description: "Port." });
