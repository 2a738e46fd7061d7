/* The GPU's numbers, read from GHOST_ROW ("key=value;..."), GHOST_DEVICES and GHOST_TOTAL. */
#include "ghost.h"

static const char *const KEYS[] = {
#define KEY(name) #name,
    ROW_KEYS(KEY)
#undef KEY
};
static char name[256];
static int64_t values[ROW_COUNT];
static unsigned char guessed[ROW_COUNT];
static unsigned reported[ROW_COUNT];
static int devices;
static size_t total;

static int key_of(const char *text, size_t length)
{
    for (int key = 0; key < ROW_COUNT; key++)
        if (strlen(KEYS[key]) == length && !memcmp(KEYS[key], text, length))
            return key;
    return -1;
}

static void read_guesses(const char *list, const char *end)
{
    while (list < end) {
        size_t length = strcspn(list, ",;");
        int key = key_of(list, length);
        if (key >= 0)
            guessed[key] = 1;
        list += length + 1;
    }
}

static void read_row(const char *text)
{
    while (*text) {
        size_t length = strcspn(text, ";"), left = strcspn(text, "=;");
        const char *value = text + left + (left < length);
        size_t size = length - (size_t)(value - text);
        int key = key_of(text, left);
        if (key >= 0)
            values[key] = strtoll(value, 0, 10);
        else if (left == 4 && !memcmp(text, "name", 4) && size < sizeof name)
            memcpy(name, value, size), name[size] = 0;
        else if (left == 5 && !memcmp(text, "guess", 5))
            read_guesses(value, value + size);
        text += length + (text[length] == ';');
    }
}

__attribute__((constructor)) static void start(void)
{
    const char *text = getenv("GHOST_ROW"), *count = getenv("GHOST_DEVICES"), *bytes = getenv("GHOST_TOTAL");
    if (text)
        read_row(text);
    devices = !text ? 0 : count && *count ? atoi(count) : 1;
    if (devices < 0 || devices > MAX_DEVICES)
        devices = MAX_DEVICES;
    if (bytes && *bytes)
        guessed[ROW_total] = 0; /* somebody read it from their machine */
    total = bytes && *bytes ? (size_t)strtoull(bytes, 0, 10) : (size_t)values[ROW_total];
}

int64_t row(enum RowKey key)
{
    if (guessed[key] && reported[key] != ghost_generation) {
        reported[key] = ghost_generation;
        report(GUESS, KEYS[key], 0, 0);
    }
    return values[key];
}

int64_t row_quietly(enum RowKey key) { return values[key]; }
const char *row_name(void) { return name; }
int device_count(void) { return devices; }
size_t device_total(void) { return total; }
