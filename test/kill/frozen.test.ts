/** Processes of the server form frozen until another one has taken over. */
import { describeFrozen } from "./frozen.ts";

describeFrozen();
