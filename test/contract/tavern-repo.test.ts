import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeTavernRepo } from "./tavern-repo.ts";

describeTavernRepo("file", twoInstancesOfFile);
describeTavernRepo("server", twoInstancesOfServer);
