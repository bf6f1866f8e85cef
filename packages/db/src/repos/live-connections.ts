/** Which connections count, and what becomes of those that do no more. Apart from their repository, which keys and tenants do not need. */
import { endedEvent } from "@toolyard/core/realtime/connection";
import { vcpLogClient } from "@toolyard/core/vcp/nodes/client-types";
import { now } from "./fragments.ts";

/** Instead of a process: of a device that is away. */
export const awayHolder = "away";

/** Is connection `c` alive, and may it be: a key that was revoked and a tenant that is suspended hear nothing. */
export const isLive = `c.expires_at > ${now}
  AND EXISTS (SELECT 1 FROM tenants AS t WHERE t.id = c.tenant AND t.status = 'active')
  AND (c.caller ->> 'kind' <> 'key' OR EXISTS (
    SELECT 1 FROM api_keys AS k WHERE k.tenant = c.tenant AND k.id = c.caller ->> 'id'
      AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > ${now})))`;

/** Do clients of the type `VCPLog` hear of this event: is it for them, or for all clients of the tenant? */
export const isForLog = (event: string): string =>
  `(${event}.audience = 'tenant' OR (${event}.audience = 'client_type' AND ${event}.audience_value = '${vcpLogClient}'))`;

/**
 * Behind what has made connections of tenant ?1 count no more, in its transaction: the processes that hold them are told,
 * since they would let them speak until they renew them, and whoever delivers ends what API Gateway holds.
 */
export const endConnections = `INSERT INTO connection_events (tenant, audience, audience_value, type, data, next_at)
  SELECT c.tenant, 'connection', c.id, '${endedEvent}', '{}', CASE c.holder WHEN '' THEN ${now} END FROM connections AS c
  WHERE c.tenant = ?1 AND c.holder <> '${awayHolder}' AND c.expires_at > ${now} AND NOT (${isLive})`;
