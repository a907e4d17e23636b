/* nd-missing: imports what the host does not have. */
#include <windows.h>

int main(void) {
    Beep(440, 1);
    return GetVolumeInformationA(NULL, NULL, 0, NULL, NULL, NULL, NULL, 0);
}
