/** One line for each scheme. */
import { apiPeers } from "./api.ts";
import { mailPeers } from "./mail.ts";
import { mcpPeers } from "./mcp.ts";
import { mqPeers } from "./mq.ts";
import { ossPeers } from "./oss.ts";
import type { ServicePeer } from "./peer.ts";
import { smsPeers } from "./sms.ts";
import { svcPeers } from "./svc.ts";

export const servicePeers: readonly ServicePeer[] = [
  ...apiPeers,
  ...mcpPeers,
  ...svcPeers,
  ...ossPeers,
  ...mqPeers,
  ...mailPeers,
  ...smsPeers,
];
