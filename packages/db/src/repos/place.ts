/**
 * Pages of lists whose order is not that of their ids: such a page begins after the place of a row, which only that row
 * knows. Where it is gone, nothing would follow, and a list that is cut off would look whole.
 */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { StatementResult } from "../database.ts";

/** @throws GatewayError `invalid_request` (param `after`) where the row that was asked for is not there */
export function requirePlace(found: StatementResult | undefined): void {
  if (found === undefined || found.rows.length > 0) return;
  throw new GatewayError(
    "invalid_request",
    "'after' names nothing that is there, or nothing that still is; begin the list again without it.",
    { param: "after" },
  );
}
